"""Resolution of :attr:`Role.overrides`: values computed when they are first read."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

_cells_lock = threading.Lock()


class OverrideCell:
    """The value of one override, computed once and by one thread.

    The cell replaces the override in ``Role.overrides`` when the override is first read.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._lock = threading.RLock()
        self._running = False
        self._done = False
        self._value: Any = None

    def get(self, read_attribute: Callable[[], Any]) -> Any:
        """Return the value; compute it on the first call.

        Args:
            read_attribute: Returns the attribute's own value, for an override that reads the
                same attribute.
        """
        if self._done:
            return self._value
        with self._lock:
            if self._done:
                return self._value
            if self._running:
                return read_attribute()
            self._running = True
            try:
                self._value = _resolve(self._source)
                self._done = True
            finally:
                self._running = False
        return self._value

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # Only dataclasses.asdict(role) calls this. Role.__deepcopy__ does not copy the overrides.
        return copy.deepcopy(self._value, memo) if self._done else self

    def __repr__(self) -> str:
        return repr(self._value) if self._done else repr(self._source)


def resolve_override(
    overrides: dict[str, Any], name: str, read_attribute: Callable[[], Any]
) -> Any:
    """Return the value of ``overrides[name]``; compute it on the first call."""
    cell = overrides[name]
    if not isinstance(cell, OverrideCell):
        with _cells_lock:
            cell = overrides[name]
            if not isinstance(cell, OverrideCell):
                cell = overrides[name] = OverrideCell(cell)
    return cell.get(read_attribute)


def _resolve(source: Any) -> Any:
    import concurrent.futures
    import inspect

    value = source() if callable(source) else source
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    return _wait(value) if inspect.isawaitable(value) else value


def _wait(awaitable: Any) -> Any:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    if isinstance(awaitable, asyncio.Future):
        if awaitable.done():
            return awaitable.result()
        raise RuntimeError(
            "an override waits for a future of an event loop; await the future before, or give a"
            " coroutine"
        )

    async def result() -> Any:
        return await awaitable

    # Use another thread, because an event loop may be running in this one.
    with ThreadPoolExecutor(1, "torchx-override") as executor:
        return executor.submit(asyncio.run, result()).result()
