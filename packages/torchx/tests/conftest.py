"""The fixture ``install``, which installs plugins for one test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchx_specs.plugins.manager import set_manager

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Yield a function that installs a distribution with entry points and modules.

    The function's ``entry_points`` maps groups to lines, and ``modules`` maps paths to sources.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = set(sys.modules)

    def add(
        name: str,
        entry_points: dict[str, list[str]] | None = None,
        modules: dict[str, str] | None = None,
    ) -> Path:
        info = tmp_path / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        text = "".join(
            f"[{group}]\n" + "".join(f"{line}\n" for line in lines)
            for group, lines in (entry_points or {}).items()
        )
        (info / "entry_points.txt").write_text(text)
        for path, source in (modules or {}).items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        _clear_caches()
        return tmp_path

    yield add
    for module in set(sys.modules) - loaded:
        if getattr(sys.modules[module], "__file__", None) and str(tmp_path) in str(
            sys.modules[module].__file__
        ):
            del sys.modules[module]
    for module in [m for m in sys.modules if m.split(".")[0] == "torchx_plugins"]:
        del sys.modules[module]
    _clear_caches()


def _clear_caches() -> None:
    import importlib

    from torchx.plugins import registry

    importlib.invalidate_caches()
    registry.cache_clear()
    set_manager(None)
