"""Tests that torchx_specs has every name that upstream's pages import from ``torchx.specs``.

``torchx.specs.named_resources_aws`` is not listed, because it is part of torchx-resources-aws.
"""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "torchx_specs": (
        "AppDef AppDryRunInfo AppHandle AppState AppStatus BindMount CfgVal DeviceMount MISSING"
        " NULL_RESOURCE ParsedAppHandle ReplicaState Resource RetryPolicy Role RoleStatus"
        " StructuredOpts VolumeMount Workspace _named_resource_factories file_linter"
        " get_named_resources macros named_resources named_resources_generic overlays"
        " parse_app_handle parse_mounts resource runopt runopts"
    ),
    "torchx_specs.overlays": (
        "DEL JOIN PUT apply_overlay get_overlay set_overlay validate_overlay"
    ),
    "torchx_specs.file_linter": (
        "ComponentFunctionValidator LinterMessage get_fn_docstring validate"
    ),
}


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in NAMES for name in NAMES[module].split()]
)
def test_documented_name_can_be_imported(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
