"""Resolution of :attr:`Role.overrides`: values that are made when an attribute is first read."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

_cells_guard = threading.Lock()


class OverrideCell:
    """Takes the place of an override once it was asked for; computes it in one thread, once."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._lock = threading.RLock()
        self._running = False
        self._done = False
        self._value: Any = None

    def get(self, plain: Callable[[], Any]) -> Any:
        """Returns the value; ``plain`` gives the attribute itself, for an override that reads what
        it overrides.
        """
        if self._done:
            return self._value
        with self._lock:
            if self._done:
                return self._value
            if self._running:
                return plain()
            self._running = True
            try:
                self._value = _resolve(self._source)
                self._done = True
            finally:
                self._running = False
        return self._value

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # by dataclasses.asdict(role); copies of roles share the dict that the cell is in
        return copy.deepcopy(self._value, memo) if self._done else self

    def __repr__(self) -> str:
        return repr(self._value) if self._done else repr(self._source)


def resolve_override(overrides: dict[str, Any], name: str, plain: Callable[[], Any]) -> Any:
    """Returns the value of ``overrides[name]``, resolving it the first time."""
    cell = overrides[name]
    if not isinstance(cell, OverrideCell):
        with _cells_guard:
            cell = overrides[name]
            if not isinstance(cell, OverrideCell):
                cell = overrides[name] = OverrideCell(cell)
    return cell.get(plain)


def _resolve(source: Any) -> Any:
    import concurrent.futures
    import inspect

    value = source() if callable(source) else source
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    if inspect.isawaitable(value):
        return _wait(value)
    return value


def _wait(awaitable: Any) -> Any:
    import asyncio

    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None

    async def result() -> Any:
        return await awaitable

    if isinstance(awaitable, asyncio.Future):
        loop = awaitable.get_loop()
        if awaitable.done():
            return awaitable.result()
        if loop is running:
            raise RuntimeError(
                "an override waits for a future of the event loop that is running;"
                " await it before, or give a coroutine"
            )
        if loop.is_running():
            return asyncio.run_coroutine_threadsafe(result(), loop).result()
        return loop.run_until_complete(awaitable)
    if running is None:
        return asyncio.run(result())
    # a coroutine belongs to no loop yet: run it beside the one that is busy with us
    box: list[Any] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            box.append(asyncio.run(result()))
        except BaseException as e:
            error.append(e)

    thread = threading.Thread(target=run, name="torchx-override")
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return box[0]
