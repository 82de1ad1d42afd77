"""Find copies of workspaces that no job of a batch system uses, for ``torchx workspace prune``."""

from __future__ import annotations

import glob
import logging
import os
import posixpath
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from torchx_kit.batch.scheduler import BatchScheduler
from torchx_kit.home import home_path
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.local import LocalHost
from torchx_kit.hosts.lookup import find_host
from torchx_kit.workspace.host_dir import TREES
from torchx_kit.workspace.pruning import DEFAULT_AGE, PruneError
from torchx_specs.errors import TorchXError
from torchx_specs.model.status import is_terminal
from torchx_specs.plugins.manager import get_manager
from torchx_specs.workspace.pruning import Prunable, PruneQuery

# How long before the submission of an app its tree may have been used: the clocks of this machine
# and of a host may differ, and a scheduler uses a tree again without looking at it.
_MARGIN = 86400.0
_NS = 10**9

logger = logging.getLogger(__name__)


def unused_trees(query: PruneQuery) -> Iterator[Prunable]:
    """Yield the trees of this machine, and of all hosts to which this user has submitted apps.

    A tree was last used by the last submission from it. So no app uses it if it was last used
    before the submission of the oldest app that has not ended.

    Args:
        query: The user's request, with the minimum age.
    """
    backends: dict[str, list[str]] = {}
    for folder in sorted(glob.glob(os.path.join(home_path(), "*", "apps*"))):
        backend, name = os.path.split(os.path.relpath(folder, home_path()))
        backends.setdefault(name.partition("@")[2], []).append(backend)
    for name, names in backends.items():
        try:
            host = find_host(name) if name else LocalHost()
            schedulers = [_scheduler(backend, host) for backend in names]
            for folder in sorted(_folders(host, schedulers)):
                yield from _unused(host, folder, schedulers, query)
        except TorchXError as e:
            logger.warning("the workspaces on %s are not pruned: %s", name or "this machine", e)


def _scheduler(backend: str, host: Host) -> BatchScheduler[Any] | None:
    plugin = get_manager().schedulers().find(backend)
    scheduler = plugin.load()("prune", host=host) if plugin is not None else None
    return scheduler if isinstance(scheduler, BatchScheduler) else None


def _folders(host: Host, schedulers: list[BatchScheduler[Any] | None]) -> set[str]:
    """Return the directories of trees; on this machine, they are beside the records of jobs."""
    if host.name:
        return {host.resolve(TREES)}
    found = set()
    for scheduler in filter(None, schedulers):
        found.add(host.resolve(f".torchx-{scheduler.backend}"))
        entries = scheduler._index.entries()
        found |= {posixpath.dirname(one.record) for one in entries if one.element is None}
    return {posixpath.join(folder, "workspaces") for folder in found}


def _unused(
    host: Host,
    folder: str,
    schedulers: list[BatchScheduler[Any] | None],
    query: PruneQuery,
) -> Iterator[Prunable]:
    trees = host.list_trees(folder)
    oldest = min(map(_oldest_submission, schedulers)) if trees else 0.0
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    for tree in trees:
        used = tree.used_ns / _NS
        reason = ""
        if used > oldest - _MARGIN:
            reason = "an app that was submitted later has not ended, and may use it"
        elif not tree.is_unchanged and not tree.name.startswith("."):
            reason = "jobs have written or changed files in it"
        if not reason and time.time() - used <= age:
            continue
        remove = None if reason else partial(_remove, host, folder, tree.name, tree.used_ns)
        path = f"{host.name}:{folder}" if host.name else folder
        yield Prunable(f"{path}/{tree.name}", tree.size, remove, used, reason)


def _oldest_submission(scheduler: BatchScheduler[Any] | None) -> float:
    """Return when the oldest app that has not ended was submitted, in epoch seconds."""
    if scheduler is None:
        return 0.0  # its apps are not known
    oldest = float("inf")
    jobs = scheduler.system.listing(None)[0]
    for app in scheduler.list():
        if not is_terminal(app.state):
            entry, job = scheduler._entry(app.app_id), jobs.get(app.app_id)
            if entry is not None and entry.record:
                oldest = min(oldest, entry.submitted)
            elif job is None or scheduler.system.is_ours(job):
                return 0.0  # it was submitted with another TORCHX_HOME
    return oldest


def _remove(host: Host, folder: str, name: str, used_ns: int) -> None:
    if not host.remove_tree_if_unused(folder, name, used_ns):
        raise PruneError(f"{folder}/{name} was not removed: a submission has just used it")
