"""The ability of a scheduler to delete many apps together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class DeletesManyApps(ABC):
    """A base class of schedulers that delete many apps together faster than one by one."""

    @abstractmethod
    def delete_many(self, app_ids: Iterable[str]) -> None:
        """Delete apps as ``Scheduler.delete`` does. A missing app is not an error.

        Args:
            app_ids: The ids of the apps.

        Raises:
            TorchXError: An app cannot be deleted.
        """
