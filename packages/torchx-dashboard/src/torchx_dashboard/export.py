"""Writes chosen jobs, sweeps and runs as one page without a server, to hand to a colleague."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from torchx_dashboard.job import details, shown_status
from torchx_dashboard.jobs import Jobs, Journal
from torchx_dashboard.logs import log_messages
from torchx_dashboard.page import document
from torchx_dashboard.runners import Runners
from torchx_dashboard.runs import Trackers
from torchx_dashboard.stream import error_text
from torchx_dashboard.sweeps import sweep_data
from torchx_kit.atomic_files import write_atomically
from torchx_specs.errors import BackendError, RequestError, UnknownAppException
from torchx_specs.model.handles import parse_app_handle

# How many characters of a job's logs are in the page; the rest is left out with a note.
_MOST_LOG = 20 << 20
_MOST_RUNS = 1000


def export(folder: Path, handles: Sequence[str], *, with_runs: bool) -> str:
    """Write the page, and return its path.

    Args:
        folder: The folder of the page, which is created.
        handles: The jobs and sweeps.
        with_runs: Whether to add the runs of the configured trackers.

    Raises:
        RequestError: There is nothing to export.
        UnknownAppException: A job or sweep does not exist.
        BackendError: The page cannot be written.
    """
    if not handles and not with_runs:
        raise RequestError("nothing to export: give HANDLEs of jobs or sweeps, or --runs")
    data = asyncio.run(_data(handles, with_runs))
    path = folder / "index.html"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(os.fspath(path), document(data), 0o600)
    except OSError as e:
        raise BackendError(f"--export {folder}: {e.strerror}") from None
    return os.fspath(path)


async def _data(handles: Sequence[str], with_runs: bool) -> dict[str, Any]:
    runners, journal = Runners(), Journal()
    topics: dict[str, list[Any]] = {}
    found: dict[str, Any] = {}
    try:
        sweeps = [handle for handle in handles if handle.startswith("sweep://")]
        jobs = [handle for handle in handles if handle not in sweeps]
        if jobs:
            names = {parse_app_handle(handle).scheduler_backend for handle in jobs}
            listed = await Jobs(runners, journal).listed()
            for handle in jobs:
                await _add_job(runners, journal, handle, topics, found)
            rows = [listed.get(handle) or _row(handle, topics) for handle in jobs]
            states = {name: {"state": "ok", "error": ""} for name in names}
            topics["jobs"] = [{"rows": rows, "removed": [], "schedulers": states}]
        shown = []
        for handle in sweeps:
            sweep = await asyncio.to_thread(sweep_data, handle)
            if sweep is None:
                raise UnknownAppException(handle)
            topics[f"sweep {handle}"] = [sweep]
            shown.append({key: value for key, value in sweep.items() if key != "elements"})
        topics["sweeps"] = [shown]
        if with_runs:
            await _add_runs(topics, found)
    finally:
        await runners.close()
    pages = [name for name, has in (("jobs", jobs), ("runs", with_runs), ("sweeps", sweeps)) if has]
    return {
        "time": round(time.time() * 1000),
        "schedulers": sorted({parse_app_handle(handle).scheduler_backend for handle in jobs}),
        "pages": pages,
        "topics": topics,
        "get": found,
    }


async def _add_job(
    runners: Runners,
    journal: Journal,
    handle: str,
    topics: dict[str, list[Any]],
    found: dict[str, Any],
) -> None:
    runner = runners.of_app(handle)
    status = await runner.status(handle)
    if status is None:
        raise UnknownAppException(handle)
    shown = shown_status(handle, status, journal)
    topics[f"job {handle}"] = [shown]
    about = await details(runner, journal, handle)
    found[f"api/job?{urlencode({'handle': handle})}"] = about
    replicas = [(role.role, replica.id) for role in status.roles for replica in role.replicas]
    messages: list[Any] = []
    topics[f"log {handle}"] = messages
    if not about["logs"]:
        return
    size = 0
    query = {"handle": handle, "replicas": replicas, "follow": False}
    async for parts in log_messages(runner, query):
        messages.append(parts)
        size += sum(len(part.get("text", "")) for part in parts)
        if size > _MOST_LOG:
            text = f"the rest of the logs was left out, after {_MOST_LOG >> 20} MB"
            messages.append([{"log": parts[-1]["log"], "error": text}])
            return


async def _add_runs(topics: dict[str, list[Any]], found: dict[str, Any]) -> None:
    trackers = Trackers()
    messages = [message async for message in trackers.messages({})]
    topics["runs"] = messages
    runs = [run for message in messages for run in message.get("runs", ())]
    for run in runs[:_MOST_RUNS]:
        query = {"tracker": run["tracker"], "id": run["id"]}
        try:
            data = await asyncio.to_thread(trackers.details, run["tracker"], run["id"])
        except Exception as e:  # the other runs are exported
            messages.insert(-1, {"tracker": run["tracker"], "error": error_text(e)})
            continue
        found[f"api/run?{urlencode(query)}"] = data
        found[f"api/run?{urlencode({**query, 'history': '1'})}"] = data["history"]


def _row(handle: str, topics: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the row of a job that its scheduler does not list."""
    [status] = topics[f"job {handle}"]
    keys = ("state", "submitted", "started", "ended", "scheduler", "name")
    return {
        **{key: status[key] for key in keys},
        "handle": handle,
        "id": status["app_id"],
        "began": status["submitted"] or status["started"],
        "exit_code": None,
        "mine": True,
        "reason": status["pending"],
    }
