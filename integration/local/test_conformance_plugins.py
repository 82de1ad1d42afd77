"""Every distribution of ours that is installed, checked as a plugin."""

from __future__ import annotations

from torchx_specs.plugins.entry_points import entry_points
from torchx_testing.plugins import PluginConformance

#: Always there, for the distribution ``torchx`` needs them.
MUST = {"torchx", "torchx-cli", "torchx-components", "torchx-sched-local", "torchx-tracker-fsspec"}
INSTALLED = sorted({ep.distribution.replace("_", "-").lower() for ep in entry_points("torchx")})


def test_what_torchx_needs_is_there() -> None:
    assert set(INSTALLED) >= MUST


def _suite(name: str) -> type[PluginConformance]:
    title = "Test" + "".join(part.capitalize() for part in name.split("-"))
    return type(title, (PluginConformance,), {"distribution": name, "__module__": __name__})


# what `torchx` itself gives are bridges, for the plugins of older groups: none is installed here
globals().update({s.__name__: s for s in map(_suite, [n for n in INSTALLED if n != "torchx"])})
