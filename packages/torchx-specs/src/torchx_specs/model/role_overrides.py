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
    """A computed value, which replaces its source in ``Role.overrides``."""

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
    import concurrent.futures
    import inspect

    value = source() if callable(source) else source
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    return _wait(value, name) if inspect.isawaitable(value) else value


def _wait(awaitable: Any, name: str) -> Any:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def result() -> Any:
        return await awaitable

    if isinstance(awaitable, asyncio.Future):
        if awaitable.done():
            return awaitable.result()
        loop = awaitable.get_loop()
        if loop is asyncio._get_running_loop():
            raise RuntimeError(
                f"override `{name}` waits for a future of the event loop that is currently running"
                " in this thread; await the future before, or give a coroutine"
            )
        if loop.is_running():
            return asyncio.run_coroutine_threadsafe(result(), loop).result()
        return loop.run_until_complete(awaitable)
    # Use another thread, because an event loop may be running in this one.
    with ThreadPoolExecutor(1, "torchx-override") as executor:
        return executor.submit(asyncio.run, result()).result()
