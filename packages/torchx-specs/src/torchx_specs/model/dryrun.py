"""The result of a dry run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal

T = TypeVar("T")


class AppDryRunInfo(Generic[T]):
    """The request that a scheduler would submit; ``print(info)`` shows it.

    :meth:`Scheduler.submit_dryrun <torchx_specs.schedulers.Scheduler.submit_dryrun>` returns an
    AppDryRunInfo. To submit a modified request, change ``request`` before the call of
    ``schedule(info)``.

    Attributes:
        request: The scheduler's native request.
        app: The app from which the request was made.
        cfg: The resolved scheduler options.
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self._fmt = fmt
        self.app: AppDef | None = None
        self.cfg: Mapping[str, CfgVal] = {}
        self._scheduler: str | None = None
        # The arguments from which a runner made this object, for its journal.
        self._run_input: tuple[Any, ...] | None = None

    def __class_getitem__(cls, params: Any) -> Any:
        # programs use both AppDryRunInfo[Request] and AppDryRunInfo[Request, Cfg]
        first = params[0] if isinstance(params, tuple) else params
        return super().__class_getitem__(first)  # type: ignore[misc]

    # The names of `app` and `cfg` in older releases.
    _app = property(lambda self: self.app, lambda self, app: setattr(self, "app", app))
    _cfg = property(lambda self: self.cfg, lambda self, cfg: setattr(self, "cfg", cfg))

    def __repr__(self) -> str:
        return self._fmt(self.request)
