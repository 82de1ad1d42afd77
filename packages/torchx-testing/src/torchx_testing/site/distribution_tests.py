"""The tests of ``torchx conformance --distribution NAME``."""

from __future__ import annotations

from torchx_testing.plugin_suite import PluginConformance
from torchx_testing.site import settings

_SITE = settings.settings_of("distribution")


class TestSite(PluginConformance):
    """The conformance tests of the distribution that the user has chosen."""

    unsupported = _SITE.unsupported
    distribution = _SITE.name
