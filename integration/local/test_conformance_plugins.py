"""Runs the conformance suite of plugins on each installed distribution that yields records."""

from __future__ import annotations

from torchx_specs.plugins.entry_points import entry_points
from torchx_testing.plugin_suite import PluginConformance

#: The distributions with plugins that must be installed, including ``torchx`` itself.
REQUIRED = {
    "torchx",
    "torchx-cli",
    "torchx-components",
    "torchx-sched-local",
    "torchx-tracker-fsspec",
}
INSTALLED = sorted({ep.distribution.replace("_", "-").lower() for ep in entry_points("torchx")})


#: Distributions whose plugins yield no records in this environment: ``torchx`` bridges plugins with
#: entry points of older groups, and none is installed; ``torchx-kit`` yields only hints how to
#: install missing schedulers.
WITHOUT_RECORDS = {"torchx", "torchx-kit"}


def test_required_distributions_are_installed() -> None:
    assert set(INSTALLED) >= REQUIRED


def _suite(name: str) -> type[PluginConformance]:
    title = "Test" + "".join(part.capitalize() for part in name.split("-"))
    return type(title, (PluginConformance,), {"distribution": name, "__module__": __name__})


globals().update({s.__name__: s for s in map(_suite, sorted({*INSTALLED} - WITHOUT_RECORDS))})
