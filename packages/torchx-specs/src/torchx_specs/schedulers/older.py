"""Schedulers for older releases of TorchX, and classes that programs derive from our schedulers.

They read logs by the method ``log_iter`` instead of the object ``app_logs``. One class hierarchy
may have both: the most derived definition wins. :func:`link_log_forms` decides this once, when a
class is made, so that a call of either form, also by ``super()``, reaches it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from torchx_specs.schedulers.features import Feature, SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs

R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OlderLogs(Logs[Any]):
    """Reads logs by a function with the parameters of ``Scheduler.log_iter``.

    The function has no parameters for the further fields of a query, such as ``last``.

    Args:
        scheduler: The scheduler, or another object that the function belongs to.
        log_iter: Reads the log of one replica.
    """

    def __init__(self, scheduler: Any, log_iter: Callable[..., Iterable[str]]) -> None:
        super().__init__(scheduler)
        self._log_iter = log_iter

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica; see :meth:`Logs.read`."""
        limits = (query.since, query.until, query.should_tail, query.streams)
        return self._log_iter(app_id, role, k, query.regex, *limits)


def link_log_forms(cls: type[Any]) -> None:
    """Make ``log_iter`` and ``app_logs`` of a new class reach the most derived one of the two.

    Args:
        cls: A class derived from ``Scheduler``; it gets the form that it lacks.
    """
    present, older = _depth(cls, "app_logs"), _depth(cls, "log_iter")
    if older < present:

        def app_logs(self: Any) -> Logs[Any]:
            return OlderLogs(self, functools.partial(cls.log_iter, self))

        cls.app_logs = property(app_logs)
    elif present < older:
        ability = vars(cls.__mro__[present])["app_logs"]

        def log_iter(
            self: Any, app_id: str, role_name: str, k: int = 0, *args: Any, **options: Any
        ) -> Iterable[str]:
            logs: Logs[Any] = ability.__get__(self, type(self))
            return logs.read(app_id, role_name, k, LogQuery(*args, **options))

        cls.log_iter = log_iter


def inherited_features(cls: type[Any]) -> SchedulerFeatures:
    """Return the features of a new class without a record: its base's, unless it overrides them.

    Args:
        cls: A class derived from ``Scheduler``, before :func:`link_log_forms` is called.
    """
    changes: dict[str, Feature] = {}
    if _depth(cls, "log_iter") < _depth(cls, "app_logs"):
        changes |= {"logs": True, "last": False, "partial": False, "attempt_marks": False}
    if _depth(cls, "list") < _depth(cls, "list_newest"):
        changes["newest_first"] = False
    if "describe_native" in vars(cls):
        changes["native"] = True
    return replace(features_of(cls), **changes)


def _depth(cls: type[Any], name: str) -> int:
    """Return the position of the most derived class that defines a name."""
    return next(index for index, klass in enumerate(cls.__mro__) if name in vars(klass))


def features_of(scheduler: object) -> SchedulerFeatures:
    """Return the features of any object that is used as a scheduler."""
    features = getattr(scheduler, "features", None)
    return features if isinstance(features, SchedulerFeatures) else SchedulerFeatures()


def call_with_accepted(method: Callable[..., R], *args: object) -> R:
    """Call a method with the leading arguments that it accepts, and omit the others.

    Schedulers that were written for older releases of TorchX need this: ``_validate`` may lack the
    parameter ``cfg``, and ``list`` may have no parameters.
    """
    try:
        kinds = [p.kind for p in inspect.signature(method).parameters.values()]
    except (TypeError, ValueError):  # a function written in C may have no signature
        return method(*args)
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return method(*args)
    return method(*args[: sum(kind in _POSITIONAL for kind in kinds)])
