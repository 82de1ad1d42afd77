"""The schedulers: the results of the checks of ``torchx doctor``, and the length of each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_cli.doctor.run_checks import run_checks
from torchx_cli.doctor.selection import checks_of, configured_options
from torchx_runner.installed_schedulers import plugin_manager
from torchx_runner.submissions.journal import Submission


def checks() -> list[dict[str, Any]]:
    """Return the results of all checks that ``torchx doctor`` makes."""
    manager = plugin_manager()
    records = checks_of(manager, list(manager.schedulers().names()))
    return [outcome._asdict() for outcome in run_checks(records, configured_options)]


def queues(
    rows: Iterable[Mapping[str, Any]], journal: Mapping[tuple[str, str], Submission]
) -> dict[str, dict[str, Any]]:
    """Return how many jobs of each scheduler are in each state, and how many are this user's.

    The GPUs are those that this user's jobs have requested, because schedulers tell no others.

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


def _gpus(app: Mapping[str, Any] | None) -> int:
    total = 0
    for role in (app or {}).get("roles") or ():
        resource = role.get("resource") or {}
        gpu, replicas = resource.get("gpu"), role.get("num_replicas")
        if isinstance(gpu, int) and gpu > 0:
            total += gpu * (replicas if isinstance(replicas, int) else 1)
    return total
