"""Tests of the constants."""

from __future__ import annotations

import torchx_specs
from torchx_specs import app_metadata


def test_constants_have_the_documented_values() -> None:
    named = (torchx_specs.ALL, torchx_specs.MISSING, torchx_specs.NONE, torchx_specs.UNKNOWN)
    assert named == ("all", "<MISSING>", "<NONE>", "<UNKNOWN>")
    assert (torchx_specs.NA, torchx_specs.GiB) == ("<<NA>>", 1024)
    assert torchx_specs.TORCHX_CONTEXT_NAME == "TORCHX_CONTEXT_NAME"
    assert (app_metadata.CONTEXT, app_metadata.VERSION) == ("torchx/context", "torchx/version")
    assert (app_metadata.SCHEDULER, app_metadata.ROLES_PREFIX) == (
        "torchx/scheduler",
        "torchx/roles.",
    )
