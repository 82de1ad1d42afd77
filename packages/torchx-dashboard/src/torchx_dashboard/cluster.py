"""The schedulers: the checks of ``torchx doctor``, the length of each queue, and the GPUs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_cli.commands.doctor import configured_options, run_checks
from torchx_dashboard.jobs import PATIENCE
from torchx_dashboard.stream import error_text
from torchx_runner.installed_schedulers import plugin_manager
from torchx_runner.submissions.journal import Submission

if TYPE_CHECKING:
    from torchx_runner import AsyncRunner


def checks() -> list[dict[str, Any]]:
    """Return the results of all checks that ``torchx doctor`` makes."""
    return [outcome._asdict() for outcome in run_checks(plugin_manager())]


def queues(
    rows: Iterable[Mapping[str, Any]], journal: Mapping[tuple[str, str], Submission]
) -> dict[str, dict[str, Any]]:
    """Return how many jobs of each scheduler are in each state, and how many are this user's.

    The GPUs are those that this user's jobs have requested.

    Args:
        rows: The jobs of all schedulers.
        journal: The submissions of this user, by scheduler and id.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name, state = row["scheduler"], row["state"]
        queue = found.setdefault(name, {"states": Counter(), "mine": Counter(), "gpus": Counter()})
        queue["states"][state] += 1
        if row["mine"]:
            queue["mine"][state] += 1
            submission = journal.get((name, row["id"]))
            queue["gpus"][state] += _gpus(submission.app if submission else None)
    return found


async def gpus(runner: AsyncRunner, scheduler: str) -> dict[str, Any] | None:
    """Return how many GPUs of a cluster are in each state; None if the scheduler does not tell.

    Args:
        runner: Queries the scheduler.
        scheduler: Name of the scheduler.
    """

    async def counts() -> dict[str, Any] | None:
        if not (await runner.features(scheduler)).gpus:
            return None
        cfg = await asyncio.to_thread(configured_options, scheduler)
        return (await runner.gpus(scheduler, cfg or None))._asdict()

    try:
        return await asyncio.wait_for(counts(), PATIENCE)
    except asyncio.TimeoutError:
        return {"error": f"no answer for {PATIENCE:g} s"}
    except Exception as e:  # the page shows the error; other clusters are shown
        return {"error": error_text(e)}


def _gpus(app: Mapping[str, Any] | None) -> int:
    total = 0
    for role in (app or {}).get("roles") or ():
        resource = role.get("resource") or {}
        gpu, replicas = resource.get("gpu"), role.get("num_replicas")
        if isinstance(gpu, int) and gpu > 0:
            total += gpu * (replicas if isinstance(replicas, int) else 1)
    return total
