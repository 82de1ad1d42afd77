"""Sweeps: their list, and the elements of one with parameters and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from torchx_dashboard.runs import shown_values
from torchx_dashboard.stream import changes
from torchx_specs.errors import UnknownAppException
from torchx_sweep import api
from torchx_sweep.output.tables import element_data, status_data

_INTERVAL = 2.0


def list_messages(parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Yield the status of each sweep, the newest first, whenever one changes."""
    return _repeated(lambda: [status_data(found) for found in api.statuses()])


async def sweep_messages(parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Yield status and elements of a sweep whenever they change; end with the sweep.

    Args:
        parameters: ``handle``: the sweep.
    """
    handle = str(parameters["handle"])
    async for data in _repeated(lambda: sweep_data(handle)):
        yield data
        if data is None or not data["unfinished"]:
            return


def sweep_data(handle: str) -> dict[str, Any] | None:
    """Return status and elements of a sweep, or None if the sweep does not exist."""
    try:
        found, elements = api.status(handle), api.results(handle)
    except UnknownAppException:
        return None
    metrics = api.metrics(elements)
    rows = []
    for element in elements:
        row = element_data(element)
        row["parameters"] = shown_values(element.parameters)
        row["metrics"] = shown_values(metrics.get(element.number, {}))
        rows.append(row)
    return {**status_data(found), "unfinished": found.is_unfinished, "elements": rows}


def _repeated(query: Callable[[], Any]) -> AsyncIterator[Any]:
    """Yield the result of a function, which threads call, whenever the result has changed."""
    return changes(lambda: asyncio.to_thread(query), lambda data: _INTERVAL)
