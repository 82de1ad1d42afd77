"""One stream of server-sent events for all subscriptions of a browser.

A browser opens at most six connections to a server, so all subscriptions share one. A subscription
is an asynchronous iterator of messages. A message waits while the browser does not read, so a slow
browser slows down its own subscriptions only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from torchx_specs.errors import one_line
from torchx_specs.redaction import masked_text

#: The time between two heartbeats, in seconds. Proxies close connections without traffic.
HEARTBEAT = 15.0
# A query that takes T seconds is repeated every T * _SLOWNESS seconds at most.
_SLOWNESS = 10.0
# How many messages of all subscriptions wait for the browser.
_WAITING = 16

#: Returns the messages of a subscription, from its parameters.
Topic = Callable[[Mapping[str, Any]], AsyncIterator[Any]]


def to_json(data: Any) -> bytes:
    """Return data as JSON; all characters are ASCII, so lone surrogates are kept."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=str).encode()


def error_text(error: BaseException) -> str:
    """Return an error as one line without secrets."""
    return masked_text(one_line(error))


async def changes(
    query: Callable[[], Awaitable[Any]], interval: Callable[[Any], float]
) -> AsyncIterator[Any]:
    """Yield the result of a query, and then each other result.

    Args:
        query: The query, which is repeated.
        interval: Returns the shortest time until the next query, in seconds, from a result.
    """
    loop = asyncio.get_running_loop()
    shown: Any = ""
    while True:
        began = loop.time()
        data = await query()
        if data != shown:
            yield data
            shown = data
        await asyncio.sleep(max(interval(data), _SLOWNESS * (loop.time() - began)))


class Stream:
    """The subscriptions of one browser, and the messages that wait for it.

    Args:
        topics: The topics by name.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self.id = secrets.token_urlsafe(12)
        self._topics = topics
        self._messages: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended = asyncio.Event()

    def subscribe(self, key: str, topic: str, parameters: Mapping[str, Any]) -> None:
        """Begin a subscription; end an earlier one that has the same key.

        Args:
            key: The browser's name of the subscription, which each of its messages contains.
            topic: Name of the topic.
            parameters: What the topic needs, such as the handle of a job.
        """
        self.unsubscribe(key)
        self._tasks[key] = asyncio.create_task(self._run(key, topic, parameters))

    def unsubscribe(self, key: str) -> None:
        """End a subscription, if it exists."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """End all subscriptions and the events."""
        for key in list(self._tasks):
            self.unsubscribe(key)
        self._ended.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the browser disconnects, or until :meth:`close`."""
        ended = asyncio.create_task(self._ended.wait())
        message: asyncio.Task[bytes] | None = None
        try:
            yield _event({"stream": self.id})
            while not ended.done():
                message = message or asyncio.create_task(self._messages.get())
                waits = (message, ended)
                await asyncio.wait(waits, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                if message.done():
                    yield message.result()
                    message = None
                elif not ended.done():
                    yield b": heartbeat\n\n"
        finally:
            for task in (ended, *([message] if message else [])):
                task.cancel()
            self.close()

    async def _run(self, key: str, topic: str, parameters: Mapping[str, Any]) -> None:
        """Put the messages of a subscription into the queue; its last message says so."""
        last: dict[str, Any] = {"key": key, "end": True}
        try:
            messages = self._topics[topic](parameters)
            async with contextlib.aclosing(messages):  # type: ignore[type-var]
                async for message in messages:
                    await self._messages.put(_event({"key": key, "data": message}))
        except KeyError as e:
            last["error"] = f"unknown topic, or a parameter is missing: {e}"
        except Exception as e:  # the other subscriptions continue
            last["error"] = error_text(e)
        await self._messages.put(_event(last))


def _event(data: Any) -> bytes:
    return b"data: " + to_json(data) + b"\n\n"
