"""The ability of a scheduler to take an app back from its queue before the app starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal


class WithdrawsApps(ABC):
    """A base class of schedulers that can cancel an app unless the app has started.

    Sweeps on several schedulers need this ability: they submit an element to another scheduler only
    if :meth:`withdraw` has returned True.
    """

    @abstractmethod
    def withdraw(self, app_id: str) -> bool:
        """Cancel an app unless it has started; return True if the app will never start.

        If the result is False, the app is unchanged. The result is also False if the scheduler
        cannot prevent the app's start at present. A second call for a withdrawn app returns True
        again. The implementation must prevent the app's start before it cancels the app: no process
        of an app may have begun if the result is True.

        Args:
            app_id: The app's id.

        Raises:
            TorchXError: It is unknown whether the app has started. The caller must call again.
        """

    def withdrawal_problem(self, cfg: Mapping[str, CfgVal]) -> str | None:
        """Return why apps with these options cannot be withdrawn; None if they can be.

        Args:
            cfg: The scheduler's options.
        """
        return None
