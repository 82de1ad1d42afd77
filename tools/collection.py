"""Check that tests have the same names and order in each run: ``collection.py FOLDER ...``.

pytest-xdist needs this, and so do names in reports. The check collects the tests twice, in
processes with different ids and different seeds of the hashes of strings.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys


def collect(seed: int, folders: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.Popen(
        [*command, *folders], stdout=subprocess.PIPE, text=True, env=environment
    )


def main(folders: list[str]) -> int:
    found = []
    for process in [collect(seed, folders) for seed in (1, 2)]:
        output, _ = process.communicate()
        if process.returncode:
            print(output)
            return 1
        found.append([line for line in output.splitlines() if "::" in line])
    different = list(difflib.unified_diff(found[0], found[1], "seed 1", "seed 2", n=0, lineterm=""))
    print("\n".join(different) or f"{len(found[0])} tests have the same names in two runs")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
