"""The logs of a job's replicas, followed and sent as blocks of text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_dashboard.stream import error_text
from torchx_specs.errors import UnknownAppException
from torchx_specs.schedulers.log_items import Stream

if TYPE_CHECKING:
    from torchx_runner import AsyncRunner

    Source = tuple[str, str, int]

# Reading pauses while this many characters wait for the browser.
_MOST_WAITING = 1 << 20
# A message has at most about this many characters, so that the page stays responsive.
_BLOCK = 1 << 17


class _Pending:
    """The text that was read and not sent yet, and its readers.

    Args:
        runner: Reads the logs.
        handle: The job.
        skip: How many lines of each log the page has already.
    """

    def __init__(self, runner: AsyncRunner, handle: str, skip: Mapping[str, int]) -> None:
        self._runner = runner
        self._handle = handle
        self._skip = skip
        self._parts: list[dict[str, Any]] = []
        self._size = 0
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.readers: list[asyncio.Task[None]] = []

    async def read(self, stream: Stream, replicas: list[tuple[str, int]], follow: bool) -> None:
        """Read one stream of the replicas to its end."""
        skips = {r: int(self._skip.get(log_key(stream, *r), 0)) for r in replicas}
        try:
            blocks = self._runner.log_blocks(
                self._handle, replicas, should_tail=follow, streams=stream, partial=follow
            )
            async for replica, block in blocks:
                key = log_key(stream, *replica)
                if isinstance(block, Exception):
                    self._add({"log": key, "error": error_text(block)}, 0)
                    continue
                text = "".join(block)
                while text and skips.get(replica):
                    # A part of a line that was skipped may come in several pieces.
                    _, newline, text = text.partition("\n")
                    skips[replica] -= len(newline)
                for first in range(0, len(text), _BLOCK):
                    piece = text[first : first + _BLOCK]
                    self._add({"log": key, "text": piece}, len(piece))
                    await self._room.wait()
        except Exception as e:  # the other stream may still be read
            self._add({"log": log_key(stream, *replicas[0]), "error": error_text(e)}, 0)

    def _add(self, part: dict[str, Any], size: int) -> None:
        last = self._parts[-1] if self._parts else {}
        is_same = "text" in part and last.get("log") == part["log"] and "text" in last
        if is_same and len(last["text"]) + size <= _BLOCK:
            last["text"] += part["text"]
        else:
            self._parts.append(part)
        self._size += size
        if self._size >= _MOST_WAITING:
            self._room.clear()
        self._ready.set()

    def end(self, _: object) -> None:
        """Wake the consumer, because a reader has ended."""
        self._ready.set()

    async def parts(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield what was read since the last time, until all readers have ended."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            while self._parts:
                size, sent = 0, []
                while self._parts and size < _BLOCK:
                    part = self._parts.pop(0)
                    size += len(part.get("text", ""))
                    sent.append(part)
                self._size -= size
                self._room.set()
                yield sent
            if all(reader.done() for reader in self.readers):
                return


def log_key(stream: Stream, role: str, replica: int) -> str:
    """Return the name of a log in messages, such as ``stderr/trainer/0``."""
    return f"{stream.value}/{role}/{replica}"


async def log_messages(runner: AsyncRunner, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Yield the text of logs as it is written; the iterator ends when all replicas have ended.

    Args:
        runner: Reads the logs.
        parameters: ``handle``; ``replicas``, pairs of role and index; ``streams``, such as
            ``["stdout", "stderr"]``; ``skip``, how many lines of each log to leave out.
    """
    handle = str(parameters["handle"])
    replicas = [(str(role), int(k)) for role, k in parameters["replicas"]]
    streams = [Stream(name) for name in parameters.get("streams") or ["combined"]]
    if not replicas:
        return
    if await runner.status(handle) is None:
        raise UnknownAppException(handle)
    pending = _Pending(runner, handle, parameters.get("skip") or {})
    follow = parameters.get("follow", True) is not False
    for stream in streams:
        reader = asyncio.create_task(pending.read(stream, replicas, follow))
        reader.add_done_callback(pending.end)
        pending.readers.append(reader)
    try:
        async for parts in pending.parts():
            yield parts
    finally:
        for reader in pending.readers:
            reader.cancel()
