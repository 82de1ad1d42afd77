"""Loads a component's module from a file, or from a text that a plugin provides."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import ComponentError, ComponentNotFoundException, nearest

if TYPE_CHECKING:
    from typing_extensions import Buffer

_lock = threading.RLock()
# The loaded modules by the path of their file, with the file's modification time and size then.
_loaded: dict[str, tuple[tuple[int, int], ModuleType]] = {}


class ComponentFileNotFoundError(ComponentNotFoundException, FileNotFoundError):
    """The file of a component does not exist."""


class _SourceFileLoader(importlib.machinery.SourceFileLoader):
    """Loads a source file without writing ``__pycache__``."""

    def set_data(self, path: str, data: Buffer, *, _mode: int = 0o666) -> None:
        """Do not write bytecode."""


class _TextLoader(_SourceFileLoader):
    """Loads a module from a source text that a plugin returned, without a file."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        if path == self.path:
            return self._text.encode()
        raise OSError(path)

    def path_stats(self, path: str) -> dict[str, int]:
        raise OSError(path)


def load_component_file(path: str) -> ModuleType:
    """Import a file and return its module; an unchanged file is imported only once.

    A file in a package (its folder contains ``__init__.py``) is imported by its dotted name, any
    other file by its file name. The folder that contains the package or file is appended to
    ``sys.path``. If the import fails, this folder and the module are removed again.

    Args:
        path: Path of the file. If no such file exists, a plugin may provide the text.

    Raises:
        ComponentFileNotFoundError: The file does not exist.
        ComponentError: The file is not valid Python, or raises an exception; the message contains
            the line.
    """
    with _lock:
        if not os.path.isfile(path):
            return _load_text(path)
        real = os.path.realpath(path)
        stat = os.stat(real)
        version = (stat.st_mtime_ns, stat.st_size)
        known = _loaded.get(real)
        if known is not None and known[0] == version:
            return known[1]
        name, root = _name_and_root(real)
        imported = sys.modules.get(name)
        if known is None and imported is not None and _is_from(imported, real):
            return imported  # the calling program has imported this file
        if imported is not None and imported is not (known and known[1]):
            name = _free_name(name)
        module = _load(path, real, name, root)
        _loaded[real] = (version, module)
        return module


def _name_and_root(real: str) -> tuple[str, str]:
    """Return the dotted module name of a file, and the folder that must be on ``sys.path``."""
    folder, filename = os.path.split(real)
    stem = filename.rpartition(".")[0] or filename
    parts = [] if stem == "__init__" else [stem]
    package = folder
    while os.path.isfile(os.path.join(package, "__init__.py")):
        package, part = os.path.split(package)
        parts.insert(0, part)
    if all(part.isidentifier() for part in parts):
        return ".".join(parts), package
    return "".join(c if c.isalnum() else "_" for c in stem), folder


def _is_from(module: ModuleType, real: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file) == real


def _free_name(name: str) -> str:
    names = (f"{name}_{number}" for number in itertools.count(1))
    return next(free for free in names if free not in sys.modules)


def _load(path: str, real: str, name: str, root: str) -> ModuleType:
    path_entry = None if root in sys.path else root
    if path_entry is not None:
        sys.path.append(path_entry)
    try:
        parent = name.rpartition(".")[0]
        if parent:
            importlib.import_module(parent)
        module = _executed(_SourceFileLoader(name, real))
    except BaseException as e:
        if path_entry is not None and path_entry in sys.path:
            sys.path.remove(path_entry)
        raise_load_error(e, path, real)
        raise
    if parent:
        setattr(sys.modules[parent], name.rpartition(".")[2], module)
    return module


def _executed(loader: _SourceFileLoader) -> ModuleType:
    """Return the loader's module, which replaces one of the same name unless it fails."""
    previous = sys.modules.get(loader.name)
    spec: Any = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        if previous is None:
            sys.modules.pop(loader.name, None)
        else:
            sys.modules[loader.name] = previous
        raise
    return module


def raise_load_error(error: BaseException, what: str, file: str | None = None) -> None:
    """Raise a ComponentError with the file, the line and the text of an import error.

    Return if the error must not be converted, such as a KeyboardInterrupt.

    Args:
        error: The exception that the import raised.
        what: The file or module, as the user gave it.
        file: The path of the file, if known.

    Raises:
        ComponentError: The module cannot be imported.
    """
    if isinstance(error, SyntaxError):
        where = (
            f"{what}:{error.lineno}"
            if error.filename in (file, what)
            else f"{what}: {error.filename}:{error.lineno}"
        )
        raise ComponentError(f"{where}: {type(error).__name__}: {error.msg}") from error
    if isinstance(error, (Exception, SystemExit)):
        line = _line_in(error, file)
        where = what if line is None else f"{what}:{line}"
        text = str(error) or "(no message)"
        raise ComponentError(
            f"{where}: cannot be loaded: {type(error).__name__}: {text}"
        ) from error


def _line_in(error: BaseException, file: str | None) -> int | None:
    """Return the last line of ``file`` in an error's traceback, or None if there is none."""
    import traceback

    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == file]
    return lines[-1] if lines else None


def _load_text(path: str) -> ModuleType:
    for group in plugin_manager().components():
        if group.read_file is None:
            continue
        try:
            text = group.read_file(path)
        except OSError:
            continue
        import hashlib

        stem = "".join(c if c.isalnum() else "_" for c in path)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"torchx_component_file_{stem}_{digest}"
        if name in sys.modules:
            return sys.modules[name]
        try:
            return _executed(_TextLoader(name, path, text))
        except BaseException as e:
            raise_load_error(e, path, path)
            raise
    raise ComponentFileNotFoundError(_no_such_file(path))


def _no_such_file(path: str) -> str:
    if os.path.isdir(path):
        return f"{path} is a folder; give a component as path/to/file.py:function"
    folder, filename = os.path.split(path)
    try:
        siblings: Sequence[str] = [
            name for name in os.listdir(folder or ".") if name.endswith(".py")
        ]
    except OSError:
        return f"no such file: {path} (folder {folder} does not exist)"
    return f"no such file: {path};{nearest(filename, siblings)}".rstrip(";")
