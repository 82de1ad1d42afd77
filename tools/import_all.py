"""Imports every module of one installed package, in the environment that runs this.

``python -I tools/import_all.py PACKAGE FOLDER [OPTIONAL ...]``: fails unless the package is found
below ``FOLDER`` and each module imports; one that lacks an ``OPTIONAL`` import is named instead.
Knows nothing of this repository, so that it can run anywhere.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence


def main(name: str, home: str, optional: Sequence[str]) -> str:
    """What was imported, in a line."""
    package = importlib.import_module(name)
    if package.__file__ is None:
        raise SystemExit(f"{name} has no code: there is no {name}/__init__.py")
    if not package.__file__.startswith(home):
        raise SystemExit(f"{name} comes from {package.__file__}, not from {home}")
    count = 1
    left_out = []
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if module.name.endswith(".__main__"):
            continue  # a program: importing it runs it
        try:
            importlib.import_module(module.name)
            count += 1
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in optional:
                raise
            left_out.append(f", without {module.name} (needs {missing})")
    return f"imported {count} modules" + "".join(left_out)


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
