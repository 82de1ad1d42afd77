"""Call every public name of a release with three inputs, and print the outcomes as JSON.

``python names.py NAMES.json`` calls the names that each module of a release defines.
``python names.py OUTCOMES.json`` calls the names that such an output has. An outcome is
``["raises", CLASS, BASES...]``, ``["returns", TYPE, VALUE]``, ``["waits"]`` after a timeout,
``["exits"]`` if the call ended the process, or ``["missing", CLASS]`` for a name that cannot be
imported. VALUE is empty unless the value is plain data. The variable ``LIBRARIES`` may name a
folder with libraries that are missing in the environment, such as PyTorch.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INPUTS: tuple[tuple[Any, ...], ...] = ((), ("a=1,b=2",), ("x://s/app", 3))
#: How long one call may take, in seconds. A call that takes longer has the outcome "waits".
TIMEOUT = 60.0


class StandIn(types.ModuleType):
    """A stand-in for a module, with any attribute.

    It is used for ``sagemaker`` only: 0.7.0 imports this library with its scheduler, but uses the
    library only to submit jobs.
    """

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """Return an object for each name that does not begin with two underscores."""
        if name.startswith("__"):
            raise AttributeError(name)
        return object()


class Shell:
    """A stand-in for IPython's shell, without which upstream's notebook module has no names."""

    def register_magic_function(self, *args: Any, **kwargs: Any) -> None:
        """Ignore a magic function."""


def plain(value: Any) -> bool:
    """Return True for data whose representation is the same in every process."""
    if isinstance(value, (list, tuple, set)):
        return all(plain(item) for item in value)
    if isinstance(value, dict):
        return all(plain(key) and plain(item) for key, item in value.items())
    return value is None or type(value) in (str, int, float, bool)


def call(function: Any, arguments: tuple[Any, ...]) -> list[str]:
    """Call a function, and return its outcome as words.

    The words are ``returns``, the value's type and, for a plain value, its text; or ``raises`` and
    the classes of the exception.
    """
    try:
        value = function(*arguments)
    except BaseException as e:
        return ["raises", *(cls.__name__ for cls in type(e).__mro__[:-2])]
    text = repr(value).replace(os.getcwd(), ".") if plain(value) else ""
    return ["returns", type(value).__name__, text]


def isolated(function: Any, arguments: tuple[Any, ...]) -> list[str]:
    """Return the outcome of a call in a child process and an empty directory."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "r+") as null:
            os.chdir(folder)
            os.environ["HOME"] = folder
            for descriptor in range(3):
                os.dup2(null.fileno(), descriptor)
            outcome = call(function, arguments)
        with open(write, "w") as pipe:
            json.dump(outcome, pipe)
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        ready = select.select([pipe], [], [], TIMEOUT)[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else ["waits" if not ready else "exits"]


def main() -> None:
    """Print the outcomes of the calls of all names, by name and input."""
    warnings.simplefilter("ignore")
    for name in [name for name in os.environ if name.startswith("TORCHX")]:
        del os.environ[name]
    os.environ["DOCKER_HOST"] = "tcp://127.0.0.1:9"
    os.environ["CI"] = "1"
    sys.path.append(os.environ.get("LIBRARIES", ""))
    for name in ("sagemaker", "sagemaker.pytorch"):
        sys.modules.setdefault(name, StandIn(name))
    # Import slow modules once. The child process of each call inherits them.
    for name in ("torch", "kubernetes.client"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    builtins.get_ipython = Shell  # type: ignore[attr-defined]
    names, sys.argv[1:] = sys.argv[1], []
    outcomes = {}
    for path in paths(json.loads(Path(names).read_text("utf-8"))):
        module, _, name = path.rpartition(".")
        try:
            value = getattr(importlib.import_module(module), name)
        except Exception as e:
            outcomes[path] = [["missing", type(e).__name__]]
            continue
        outcomes[path] = [isolated(value, arguments) for arguments in INPUTS]
    print(json.dumps(outcomes))


def paths(data: dict[str, Any]) -> Iterator[str]:
    """Yield the qualified names to call, from either kind of input file."""
    for module, entry in data.items():
        if isinstance(entry, list):
            yield module
            continue
        for name in entry.get("names", ()):
            with contextlib.suppress(Exception):  # A module may import a missing library.
                value = getattr(importlib.import_module(module), name)
                defined = getattr(value, "__module__", "") == module
                if defined and callable(value):
                    yield f"{module}.{name}"


if __name__ == "__main__":
    main()
