"""Older names of a scheduler's abilities, and the features of a scheduler without a record.

The abilities are objects (``app_logs``, ``app_sessions``, ``app_arrays``). Schedulers for older
releases, and classes that programs derive from our schedulers, define methods instead. One class
hierarchy may have both forms: the most derived definition wins. :func:`link_forms` decides this
once, when a class is made, so that a call of either form, also by ``super()``, reaches it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import Feature, No, SchedulerFeatures
from torchx_specs.schedulers.last_lines import keep_last
from torchx_specs.schedulers.log_items import Block, Replica
from torchx_specs.schedulers.logs import LogQuery, Logs
from torchx_specs.schedulers.sessions import Sessions

R = TypeVar("R")


class OlderLogs(Logs[Any]):
    """Reads logs by functions with the parameters of ``Scheduler.log_iter``.

    Args:
        scheduler: The scheduler, or another object that the functions belong to.
        log_iter: Reads the log of one replica.
        log_blocks: Reads the logs of several replicas; it may return None. None calls ``log_iter``
            in threads.
        accepted: The keyword arguments that the functions accept, of ``last`` and ``partial``.
    """

    def __init__(
        self,
        scheduler: Any,
        log_iter: Callable[..., Iterable[str]],
        log_blocks: Callable[..., Iterator[Block] | None] | None = None,
        accepted: Iterable[str] = (),
    ) -> None:
        super().__init__(scheduler)
        self._log_iter = log_iter
        self._log_blocks = log_blocks
        self._accepted = frozenset(accepted)

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica; see :meth:`Logs.read`."""
        if query.last is None or "last" in self._accepted:
            lines: Iterable[str] = self._call(self._log_iter, query, app_id, role, k)
            return lines
        return self._lines(app_id, (role, k), query)

    def _lines(self, app_id: str, replica: Replica, query: LogQuery) -> Iterator[str]:
        for _, block in self.read_many(app_id, [replica], query):
            if isinstance(block, Exception):
                raise block
            yield from block

    def read_many(
        self, app_id: str, replicas: Iterable[Replica], query: LogQuery
    ) -> Iterator[Block]:
        """Return blocks of log lines of several replicas; see :meth:`Logs.read_many`."""
        if query.last is not None and "last" not in self._accepted:
            whole = replace(query, last=None)

            def read(replicas: Iterable[Replica], should_tail: bool) -> Iterator[Block]:
                return self.read_many(app_id, replicas, replace(whole, should_tail=should_tail))

            return keep_last(read, replicas, query.last, query.should_tail)
        blocks = self._log_blocks and self._call(self._log_blocks, query, app_id, replicas)
        return super().read_many(app_id, replicas, query) if blocks is None else blocks

    def _call(self, function: Callable[..., Any], query: LogQuery, *args: object) -> Any:
        further = {name: getattr(query, name) for name in self._accepted}
        further = {n: v for n, v in further.items() if v is not None and v is not False}
        limits = (query.since, query.until, query.should_tail, query.streams)
        return function(*args, query.regex, *limits, **further)


class _Methods:
    """The methods with a known purpose that one class of schedulers has, bound to a scheduler."""

    def __init__(self, scheduler: Any, cls: type[Any]) -> None:
        self._scheduler = scheduler
        self._cls = cls

    def __getattr__(self, name: str) -> Any:
        members = (vars(klass)[name] for klass in self._cls.__mro__ if name in vars(klass))
        member = next(member for member in members if _has_purpose(member, name))
        return member.__get__(self._scheduler, type(self._scheduler))


class OlderSessions(Sessions[Any]):
    """Accesses replicas by the methods ``open_session``, ``open_port`` and so on of a class."""

    def __init__(self, scheduler: Any, cls: type[Any]) -> None:
        super().__init__(scheduler)
        self._methods = _Methods(scheduler, cls)

    def open(self, app_id: str, role: str, k: int, command: Any, **options: Any) -> Any:
        """Start a command in a replica; see :meth:`Sessions.open`."""
        return self._methods.open_session(app_id, role, k, command, **options)

    def connect(self, app_id: str, role: str, k: int, port: int) -> Any:
        """Return a socket to a port of a replica; see :meth:`Sessions.connect`."""
        return self._methods.open_port(app_id, role, k, port)

    def read_archive(self, app_id: str, role: str, k: int, path: str) -> Iterator[bytes]:
        """Return a tar archive; see :meth:`Sessions.read_archive`."""
        chunks: Iterator[bytes] | None = self._methods.read_archive(app_id, role, k, path)
        return super().read_archive(app_id, role, k, path) if chunks is None else chunks

    def write_archive(
        self, app_id: str, role: str, k: int, path: str, tar: Iterator[bytes]
    ) -> None:
        """Unpack a tar archive; see :meth:`Sessions.write_archive`."""
        if self._methods.write_archive(app_id, role, k, path, tar) is False:
            super().write_archive(app_id, role, k, path, tar)


class OlderArrays(Arrays[Any]):
    """Treats many apps by the methods ``submit_many``, ``cancel_many`` and ``delete_many``."""

    def __init__(self, scheduler: Any, cls: type[Any]) -> None:
        super().__init__(scheduler)
        self._methods = _Methods(scheduler, cls)
        self._features: SchedulerFeatures = cls.features

    def submit(self, dryrun_infos: Iterable[Any], max_parallel: int | None = None) -> Iterator[str]:
        """Submit several requests; see :meth:`Arrays.submit`."""
        if max_parallel is not None and not self._features.array_limit:
            return super().submit(dryrun_infos, max_parallel)
        limit = {} if max_parallel is None else {"max_parallel": max_parallel}
        ids: Iterator[str] = self._methods.submit_many(dryrun_infos, **limit)
        return ids

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps; see :meth:`Arrays.cancel`."""
        self._methods.cancel_many(app_ids)

    def delete(self, app_ids: Iterable[str]) -> None:
        """Delete several apps; see :meth:`Arrays.delete`."""
        self._methods.delete_many(app_ids)


def older_logs(scheduler: Any, cls: type[Any]) -> Logs[Any]:
    """Return an object that reads logs by the older methods of a class of schedulers."""
    methods = _Methods(scheduler, cls)
    # A log_iter that hides a log_blocks of a base class replaces both.
    has_blocks = _depth(cls, "log_blocks") <= _depth(cls, "log_iter")
    accepted = [name for name in ("last", "partial") if getattr(cls.features, name)]
    return OlderLogs(
        scheduler, methods.log_iter, methods.log_blocks if has_blocks else None, accepted
    )


def _log_iter(
    logs: Logs[Any], app_id: str, role_name: str, k: int = 0, *args: Any, **options: Any
) -> Iterable[str]:
    return logs.read(app_id, role_name, k, LogQuery(*args, **options))


def _log_blocks(
    logs: Logs[Any], app_id: str, replicas: Iterable[Replica], *args: Any, **options: Any
) -> Iterator[Block]:
    return logs.read_many(app_id, replicas, LogQuery(*args, **options))


#: For each ability: its older form, and how each older method calls the present form.
_FORMS: Mapping[str, tuple[Callable[[Any, type[Any]], Any], Mapping[str, Callable[..., Any]]]] = {
    "app_logs": (older_logs, {"log_iter": _log_iter, "log_blocks": _log_blocks}),
    "app_sessions": (
        OlderSessions,
        {
            "open_session": lambda sessions, app_id, role_name, k, command, **options: (
                sessions.open(app_id, role_name, k, command, **options)
            ),
            "open_port": lambda sessions, app_id, role_name, k, port: sessions.connect(
                app_id, role_name, k, port
            ),
            "read_archive": lambda sessions, *args, **names: sessions.read_archive(*args, **names),
            "write_archive": lambda sessions, *args, **names: sessions.write_archive(
                *args, **names
            ),
        },
    ),
    "app_arrays": (
        OlderArrays,
        {
            "submit_many": lambda arrays, *args, **options: arrays.submit(*args, **options),
            "cancel_many": lambda arrays, app_ids: arrays.cancel(app_ids),
            "delete_many": lambda arrays, app_ids: arrays.delete(app_ids),
        },
    ),
}

#: The methods that older releases of TorchX do not have, each with the feature that it implements
#: and the names of its first parameters. A plugin for these releases may have a method of such a
#: name for another purpose, with other parameters.
_METHODS = {
    "log_blocks": ("logs", ("app_id", "replicas")),
    "open_session": ("exec", ("app_id", "role_name", "k", "command")),
    "open_port": ("ports", ("app_id", "role_name", "k", "port")),
    "read_archive": ("archives", ("app_id", "role", "k", "path")),
    "write_archive": ("archives", ("app_id", "role", "k", "path", "tar")),
    "submit_many": ("arrays", ("dryrun_infos",)),
    "cancel_many": ("mass_cancel", ("app_ids",)),
    "delete_many": ("mass_delete", ("app_ids",)),
    "withdraw": ("withdrawal", ("app_id",)),
    "with_dependency": ("dependencies", ("cfg", "app_id", "outcome")),
    "lives_in_client": ("client_jobs", ("cfg",)),
    "wait": ("watch", ("app_id", "timeout")),
    "kill": ("kill", ("app_id",)),
    "describe_native": ("native", ("app_id",)),
}


def link_forms(cls: type[Any]) -> None:
    """Make the older and the present form of each ability of a new class call the most derived one.

    Args:
        cls: A class derived from ``Scheduler``; it gets the attributes of the form that is missing.
    """
    for name, (older_form, methods) in _FORMS.items():
        depth = _depth(cls, name)
        older = min(_depth(cls, method) for method in methods)
        if older < depth:
            setattr(cls, name, _present(older_form, cls))
        elif depth < older:
            ability = vars(cls.__mro__[depth])[name]
            for method, call in methods.items():
                if method not in vars(cls):  # else it has another purpose
                    setattr(cls, method, _older_method(ability, call))


def add_older_methods(scheduler: type[Any]) -> None:
    """Add the older methods to the class ``Scheduler``, for calls by ``super()``."""
    for name, (_, methods) in _FORMS.items():
        for method, call in methods.items():
            if method not in vars(scheduler):
                setattr(scheduler, method, _older_method(vars(scheduler)[name], call))
    scheduler.log_blocks = lambda self, *args, **options: None  # as `log_blocks` has no default


def _present(older_form: Callable[[Any, type[Any]], Any], cls: type[Any]) -> property:
    def ability(self: Any) -> Any:
        return older_form(self, cls)

    return property(ability)


def _older_method(ability: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return call(ability.__get__(self, type(self)), *args, **options)

    return method


def _depth(cls: type[Any], name: str) -> int:
    """Return the position of the most derived class that defines a name with its known purpose."""
    for index, klass in enumerate(cls.__mro__):
        member = vars(klass).get(name)
        if member is not None and _has_purpose(member, name):
            return index
    return len(cls.__mro__)


def derived_features(cls: type[Any]) -> SchedulerFeatures:
    """Return the features of a class without a record: its base's, changed by what it overrides.

    Args:
        cls: A class of schedulers; it need not be derived from ``Scheduler``.
    """
    features = SchedulerFeatures()
    for klass in reversed(cls.__mro__):
        record = vars(klass).get("features")
        if isinstance(record, SchedulerFeatures):
            features = record
        else:
            features = replace(features, **_changes(vars(klass)))
    return features


def _changes(body: Mapping[str, Any]) -> dict[str, Feature]:
    changes: dict[str, Feature] = {
        feature: _has_purpose(body[method], method)
        for method, (feature, _) in _METHODS.items()
        if method in body and feature != "logs"
    }
    names = [name for name in ("log_iter", "log_blocks") if name in body]
    readers = [body[name] for name in names if _has_purpose(body[name], name)]
    if readers:
        changes["logs"] = True
        changes |= {n: all(_accepts(r, n) for r in readers) for n in ("last", "partial")}
    if "list" in body or "list_newest" in body:
        changes["newest_first"] = "list_newest" in body
    if "submit_many" in body:
        changes["array_limit"] = _accepts(body["submit_many"], "max_parallel")
    if "resolves_secrets" in body:
        changes["secrets"] = bool(body["resolves_secrets"])
    if "repeats_log_order" in body:
        changes["log_order"] = bool(body["repeats_log_order"])
    lacks = {name: No(reason) for name, reason in body.get("lacks", {}).items()}
    return changes | {name: no for name, no in lacks.items() if hasattr(SchedulerFeatures, name)}


def _has_purpose(value: Any, name: str) -> bool:
    """Return True unless a method of a known name has other parameters than expected."""
    if name not in _METHODS:
        return True
    try:
        parameters = list(inspect.signature(value).parameters.values())[1:]
    except (TypeError, ValueError):  # a property, or not a Python function
        return False
    expected = _METHODS[name][1]
    names = tuple(p.name for p in parameters[: len(expected)])
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return True
    return names == expected and all(
        p.default is not p.empty or p.kind in variable for p in parameters[len(expected) :]
    )


def _accepts(function: Any, name: str) -> bool:
    """Return True if a function has a parameter; ``**kwargs``, which it may ignore, is none."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def call_with_accepted(method: Callable[..., R], *args: object) -> R:
    """Call a method with the leading arguments that it accepts, and omit the others.

    Schedulers that were written for older releases of TorchX need this: ``_validate`` may lack the
    parameter ``cfg``, and ``list`` may have no parameters.
    """
    if not args:
        return method()
    is_bound = inspect.ismethod(method)
    count = _count_positional(getattr(method, "__func__", method)) - is_bound
    return method(*args[:count])


@functools.lru_cache(maxsize=256)
def _count_positional(function: Callable[..., object]) -> int:
    """Return how many positional arguments a function accepts, with ``self``.

    The result is cached, because a sweep makes thousands of dry runs.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function written in C may have no signature
        return sys.maxsize
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return sys.maxsize
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional for p in parameters)


def features_of(scheduler: object) -> SchedulerFeatures:
    """Return the features of any object that is used as a scheduler."""
    features = getattr(scheduler, "features", None)
    if isinstance(features, SchedulerFeatures):
        return features
    return derived_features(type(scheduler))
