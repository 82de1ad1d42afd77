"""The interface of trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.trackers.api import Lineage as Lineage
    from torchx_specs.trackers.api import LineageLink as LineageLink
    from torchx_specs.trackers.api import TrackerArtifact as TrackerArtifact
    from torchx_specs.trackers.api import TrackerBackendError as TrackerBackendError
    from torchx_specs.trackers.api import TrackerBase as TrackerBase
    from torchx_specs.trackers.api import TrackerSource as TrackerSource
    from torchx_specs.trackers.api import TrackerValueError as TrackerValueError

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_specs.trackers.api": (
            "Lineage LineageLink TrackerArtifact TrackerBackendError TrackerBase TrackerSource"
            " TrackerValueError"
        ),
    },
    submodules="api lookup",
)
