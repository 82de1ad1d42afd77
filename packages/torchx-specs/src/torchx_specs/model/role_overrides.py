"""Resolution of :attr:`Role.overrides`: values computed when they are first read."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

# The threads that are computing overrides, by the id of the dict and the name of the override.
# Role.overrides itself has only the user's objects and resolved values.
_computing: dict[tuple[int, str], int] = {}
_changed = threading.Condition()


class ResolvedOverride:
    """A computed override; it replaces the user's function or awaitable in ``Role.overrides``."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        """Return the value."""
        return self._value

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # Only dataclasses.asdict(role) calls this. Role.__deepcopy__ does not copy the overrides.
        return copy.deepcopy(self._value, memo)

    def __repr__(self) -> str:
        return repr(self._value)


def resolve_override(
    overrides: dict[str, Any], name: str, read_attribute: Callable[[], Any]
) -> Any:
    """Return the value of ``overrides[name]``; compute it on the first call.

    Concurrent callers share one computation. If the computation raises an exception, the next call
    computes the value again. An override that reads its own attribute gets ``read_attribute()``.
    """
    key = (id(overrides), name)
    thread = threading.get_ident()
    with _changed:
        _changed.wait_for(lambda: _computing.get(key, thread) == thread)
        if key in _computing:
            return read_attribute()
        source = overrides[name]
        if isinstance(source, ResolvedOverride):
            return source()
        _computing[key] = thread
    try:
        value = _resolve(source, name)
        overrides[name] = ResolvedOverride(value)
        return value
    finally:
        with _changed:
            del _computing[key]
            _changed.notify_all()


def _resolve(source: Any, name: str) -> Any:
    import inspect
    from concurrent.futures import Future, ThreadPoolExecutor

    value = source() if callable(source) else source
    if isinstance(value, Future):
        return value.result()
    if not inspect.isawaitable(value):
        return value
    import asyncio

    if isinstance(value, asyncio.Future) and not value.done():
        raise RuntimeError(
            f"override `{name}` waits for a future whose event loop may be currently running in"
            " this thread; await the future before the attribute is read, or give a coroutine"
        )

    async def result() -> Any:
        return await value

    # Use another thread, because an event loop may be running in this one.
    with ThreadPoolExecutor(1, "torchx-override") as executor:
        return executor.submit(asyncio.run, result()).result()
