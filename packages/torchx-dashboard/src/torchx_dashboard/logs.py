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

# A message has at most about this many characters, so that the page stays responsive.
_BLOCK = 1 << 17
# Reading pauses while this many pieces wait for the browser; each has at most _BLOCK characters.
_WAITING = 8


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
    pieces: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_WAITING)

    async def read(stream: Stream) -> None:
        """Read one stream of the replicas to its end; None is the last piece."""
        try:
            async for piece in _pieces(runner, parameters, replicas, stream):
                await pieces.put(piece)
        except Exception as e:  # the other stream may still be read
            await pieces.put({"log": log_key(stream, *replicas[0]), "error": error_text(e)})
        await pieces.put(None)

    readers = [asyncio.create_task(read(stream)) for stream in streams]
    running = len(readers)
    try:
        while running:
            size = 0
            message: list[dict[str, Any]] = []
            while not message or (size < _BLOCK and not pieces.empty()):
                piece = await pieces.get()
                if piece is None:
                    running -= 1
                    break
                size += len(piece.get("text", ""))
                message.append(piece)
            if message:
                yield message
    finally:
        for reader in readers:
            reader.cancel()


async def _pieces(
    runner: AsyncRunner,
    parameters: Mapping[str, Any],
    replicas: list[tuple[str, int]],
    stream: Stream,
) -> AsyncIterator[dict[str, Any]]:
    """Yield pieces of the logs of one stream, without the lines that the page has already."""
    skip: Mapping[str, int] = parameters.get("skip") or {}
    skips = {replica: int(skip.get(log_key(stream, *replica), 0)) for replica in replicas}
    follow = parameters.get("follow", True) is not False
    blocks = runner.log_blocks(
        str(parameters["handle"]), replicas, should_tail=follow, streams=stream, partial=follow
    )
    async for replica, block in blocks:
        key = log_key(stream, *replica)
        if isinstance(block, Exception):
            yield {"log": key, "error": error_text(block)}
            continue
        text = "".join(block)
        while text and skips.get(replica):
            # A part of a line that was skipped may come in several pieces.
            _, newline, text = text.partition("\n")
            skips[replica] -= len(newline)
        for first in range(0, len(text), _BLOCK):
            yield {"log": key, "text": text[first : first + _BLOCK]}
