"""Names of environment variables, and the default image of components."""

from __future__ import annotations

from typing import Final

ENV_TORCHX_TRACKERS: Final = "TORCHX_TRACKERS"
ENV_TORCHX_PARENT_RUN_ID: Final = "TORCHX_PARENT_RUN_ID"
ENV_TORCHX_JOB_ID: Final = "TORCHX_JOB_ID"
ENV_TORCHX_ROLE: Final = "TORCHX_ROLE"
ENV_TORCHX_NUM_REPLICAS: Final = "TORCHX_NUM_REPLICAS"
ENV_TORCHX_REPLICA_ID: Final = "TORCHX_REPLICA_ID"
#: The variables of the contract with ``torchx_resilience``; docs/resilience.md describes them.
ENV_TORCHX_ATTEMPT: Final = "TORCHX_ATTEMPT"
ENV_TORCHX_RESTART_REASON: Final = "TORCHX_RESTART_REASON"
ENV_TORCHX_RESUME_DIR: Final = "TORCHX_RESUME_DIR"
ENV_TORCHX_STOP_GRACE: Final = "TORCHX_STOP_GRACE"
ENV_TORCHXCONFIG: Final = "TORCHXCONFIG"
ENV_TORCHX_INTERNAL_SESSION_ID: Final = "TORCHX_INTERNAL_SESSION_ID"
ENV_TORCHX_IMAGE: Final = "TORCHX_IMAGE"
#: The default image of components: the last one that upstream (pytorch/torchx) published.
PUBLISHED_IMAGE: Final = "ghcr.io/pytorch/torchx:0.7.0"
#: Comma-separated names of distributions or plugins that must not be loaded.
ENV_TORCHX_PLUGINS_DISABLED: Final = "TORCHX_PLUGINS_DISABLED"
#: Name of a module whose mapping ``NAMED_RESOURCES`` adds named resources.
ENV_TORCHX_CUSTOM_NAMED_RESOURCES: Final = "TORCHX_CUSTOM_NAMED_RESOURCES"
