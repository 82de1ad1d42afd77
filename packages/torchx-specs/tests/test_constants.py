"""Constants, and names of environment variables."""

from __future__ import annotations

import pytest

import torchx_specs
from torchx_specs import app_metadata
from torchx_specs.settings import tracker_config_env_var_name


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


@pytest.mark.parametrize(
    ("tracker", "variable"),
    [
        ("mlflow", "TORCHX_TRACKER_MLFLOW_CONFIG"),
        ("my-t.2", "TORCHX_TRACKER_MY_T_2_CONFIG"),
        ("ü", "TORCHX_TRACKER___CONFIG"),
    ],
)
def test_the_variable_of_a_tracker_s_configuration(tracker: str, variable: str) -> None:
    assert tracker_config_env_var_name(tracker) == variable
