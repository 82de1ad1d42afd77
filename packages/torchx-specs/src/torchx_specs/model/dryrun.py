"""What a scheduler would submit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal

T = TypeVar("T")


class AppDryRunInfo(Generic[T]):
    """Returned by :meth:`Scheduler.submit_dryrun
    <torchx_specs.schedulers.Scheduler.submit_dryrun>`.

    Wraps the request that would be submitted; ``print(info)`` shows it readably. Change ``request``
    before ``schedule(info)`` to submit something else.

    Attributes:
        request: the scheduler's native request
        app: the app it was made from
        cfg: the resolved scheduler options
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self._fmt = fmt
        self.app: AppDef | None = None
        self.cfg: Mapping[str, CfgVal] = {}
        self._scheduler: str | None = None

    def __class_getitem__(cls, params: Any) -> Any:
        # AppDryRunInfo[Request] and AppDryRunInfo[Request, Cfg] are both written in the field
        first = params[0] if isinstance(params, tuple) else params
        return super().__class_getitem__(first)  # type: ignore[misc]

    @property
    def _app(self) -> AppDef | None:
        return self.app

    @_app.setter
    def _app(self, app: AppDef | None) -> None:
        self.app = app

    @property
    def _cfg(self) -> Mapping[str, CfgVal]:
        return self.cfg

    @_cfg.setter
    def _cfg(self, cfg: Mapping[str, CfgVal]) -> None:
        self.cfg = cfg

    def __repr__(self) -> str:
        return self._fmt(self.request)
