"""The tests of ``torchx conformance --workspace NAME``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from torchx_kit.workspace import Built, BuiltReference, WorkspaceBuilder
from torchx_specs import CfgVal
from torchx_testing.site import settings
from torchx_testing.workspace_suite import Entry, WorkspaceBuilderConformance, read_folder

_SITE = settings.settings_of("workspace")


class TestSite(WorkspaceBuilderConformance):
    """The conformance tests of the workspace builder that the user has chosen."""

    unsupported = _SITE.unsupported
    base_image = _SITE.image or "base"

    @pytest.fixture
    def builder(self) -> WorkspaceBuilder:
        """Return a new builder."""
        builder: WorkspaceBuilder = _SITE.create()
        return builder

    @pytest.fixture
    def cfg(self) -> Mapping[str, CfgVal]:
        """Return the options of each build."""
        return dict(_SITE.cfg)

    def contents(
        self, builder: WorkspaceBuilder, plan: BuiltReference, built: Built, cfg: Any
    ) -> Mapping[str, Entry]:
        """Return the files of a built workspace; skip the test unless the workspace is a folder."""
        if os.path.isdir(plan.image):
            return read_folder(plan.image)
        reason = f"the workspace '{plan.image}' is not a folder, so its files cannot be read here"
        self.declare("files of the built workspace", reason)
        pytest.skip(reason)
