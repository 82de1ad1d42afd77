"""The result of a dry run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.workspace.spec import Workspace

T = TypeVar("T")


@dataclass(frozen=True)
class RunInput:
    """The arguments of a dry run, with which the submission can be repeated.

    Args:
        app: The app as the caller defined it, without the variables that the runner adds.
        cfg: The given options of the scheduler.
        workspace: The workspace that was given for the first role.
        parent_run_id: The id of the parent run.
    """

    app: AppDef
    cfg: Mapping[str, CfgVal]
    workspace: Workspace | str | None = None
    parent_run_id: str | None = None


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
        # A runner sets these two: the scheduler's name, and the input, for its journal.
        self._scheduler: str | None = None
        self._run_input: RunInput | None = None

    def __class_getitem__(cls, params: Any) -> Any:
        # programs use both AppDryRunInfo[Request] and AppDryRunInfo[Request, Cfg]
        first = params[0] if isinstance(params, tuple) else params
        return super().__class_getitem__(first)  # type: ignore[misc]

    # The names of `app` and `cfg` in older releases.
    _app = property(lambda self: self.app, lambda self, app: setattr(self, "app", app))
    _cfg = property(lambda self: self.cfg, lambda self, cfg: setattr(self, "cfg", cfg))

    def __repr__(self) -> str:
        return self._fmt(self.request)
