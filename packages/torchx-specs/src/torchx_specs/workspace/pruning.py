"""The contract between ``torchx workspace prune`` and the pruners of plugins.

A pruner finds data that TorchX made and that no job uses, such as images and copies of workspaces.
The command shows the data, asks the user, and then removes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PruneQuery:
    """The user's request.

    Args:
        older_than: Find only data that was last used more than this many seconds ago. None means
            the default of each pruner.
        include_newest: Whether to include data that makes the next submission faster, such as the
            newest image of each workspace.
    """

    older_than: float | None = None
    include_newest: bool = False


@dataclass(frozen=True)
class Prunable:
    """Data that a pruner has found.

    Args:
        name: The path of the data, or the name of the data in a service.
        size: How many bytes the removal frees; None if unknown.
        remove: A function that removes the data; None if the data must stay. The function checks
            again that no job uses the data. Data that another process has removed is not an error.
            The function raises a :class:`~torchx_specs.errors.TorchXError` if the data is in use or
            cannot be removed.
        last_used: When the data was last used, in seconds since 1970; None if unknown.
        reason: Why the data must stay; empty if ``remove`` is given.
    """

    name: str
    size: int | None
    remove: Callable[[], None] | None
    last_used: float | None = None
    reason: str = ""
