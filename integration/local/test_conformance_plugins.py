"""The conformance suite of plugins on every installed distribution of TorchX."""

from __future__ import annotations

from torchx_specs.plugins.entry_points import entry_points
from torchx_testing.plugin_suite import PluginConformance

#: The distributions that ``torchx`` requires.
REQUIRED = {
    "torchx",
    "torchx-cli",
    "torchx-components",
    "torchx-sched-local",
    "torchx-tracker-fsspec",
}
INSTALLED = sorted({ep.distribution.replace("_", "-").lower() for ep in entry_points("torchx")})


#: Yield no records here: torchx bridges plugins of older groups, of which none is installed, and
#: torchx-kit yields install hints for schedulers that are not installed.
WITHOUT_RECORDS = {"torchx", "torchx-kit"}


def test_required_distributions_are_installed() -> None:
    assert set(INSTALLED) >= REQUIRED


def _suite(name: str) -> type[PluginConformance]:
    title = "Test" + "".join(part.capitalize() for part in name.split("-"))
    return type(title, (PluginConformance,), {"distribution": name, "__module__": __name__})


globals().update({s.__name__: s for s in map(_suite, sorted({*INSTALLED} - WITHOUT_RECORDS))})
