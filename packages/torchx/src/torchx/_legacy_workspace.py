"""Deprecated types of ``torchx.workspace.api``."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

PackageType = TypeVar("PackageType")
WorkspaceConfigType = TypeVar("WorkspaceConfigType")


def _warn(name: str) -> None:
    warnings.warn(
        f"{name} is deprecated, implement torchx.workspace.WorkspaceMixin",
        FutureWarning,
        stacklevel=4,
    )


@dataclass
class PkgInfo(Generic[PackageType]):
    """The result of a deprecated workspace builder."""

    img: str
    lazy_overrides: dict[str, Any] = field(default_factory=dict)
    metadata: PackageType | None = None

    def __post_init__(self) -> None:
        _warn("PkgInfo")


class WorkspaceBuilder(ABC, Generic[PackageType, WorkspaceConfigType]):
    """Deprecated; implement ``torchx_specs.workspace.WorkspaceBuilder`` instead."""

    def __init__(self, cfg: WorkspaceConfigType | Mapping[str, Any] | None = None) -> None:
        _warn("WorkspaceBuilder")
        self.cfg = cfg

    @abstractmethod
    def build_workspace(self, sync: bool = True) -> PkgInfo[PackageType]:
        """Build the workspace; return before it is built unless ``sync``."""
