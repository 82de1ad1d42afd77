"""Find workspaces on other machines that no job uses, for ``torchx workspace prune``."""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Iterator
from functools import partial

from torchx_kit.batch.scheduler import BatchScheduler
from torchx_kit.home import home_path
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.lookup import find_host
from torchx_kit.workspace.host_dir import TREES
from torchx_kit.workspace.pruning import DEFAULT_AGE, PruneError
from torchx_specs.errors import TorchXError
from torchx_specs.model.status import is_terminal
from torchx_specs.plugins.manager import get_manager
from torchx_specs.schedulers.sessions import NotSupportedError
from torchx_specs.workspace.pruning import Prunable, PruneQuery

# How much the clocks of this machine and of a host may differ, in seconds.
_CLOCK_ERROR = 86400.0
_NS = 10**9

logger = logging.getLogger(__name__)


def unused_trees(query: PruneQuery) -> Iterator[Prunable]:
    """Yield the trees of all hosts to which this user has submitted apps.

    A tree was last used by the last submission from it. So no app uses it if it was last used
    before the submission of the oldest app that has not ended.

    Args:
        query: The user's request, with the minimum age.
    """
    backends: dict[str, list[str]] = {}
    for folder in sorted(glob.glob(os.path.join(home_path(), "*", "*@*"))):
        backend, name = os.path.split(os.path.relpath(folder, home_path()))
        backends.setdefault(name.partition("@")[2], []).append(backend)
    for name, names in backends.items():
        try:
            yield from _unused(find_host(name), names, query)
        except NotSupportedError:
            continue
        except TorchXError as e:
            logger.warning("the workspaces on %s are not pruned: %s", name, e)


def _unused(host: Host, backends: list[str], query: PruneQuery) -> Iterator[Prunable]:
    folder = host.resolve(TREES)
    trees = host.list_trees(folder)
    oldest = _oldest_submission(host, backends) if trees else 0.0
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    for tree in trees:
        used = tree.used_ns / _NS
        reason = ""
        if used > oldest - _CLOCK_ERROR:
            reason = "an app that was submitted later has not ended, and may use it"
        elif not tree.is_unchanged and not tree.name.startswith("."):
            reason = "jobs have written or changed files in it"
        if not reason and time.time() - used <= age:
            continue
        remove = None if reason else partial(_remove, host, folder, tree.name, tree.used_ns)
        yield Prunable(f"{host.name}:{folder}/{tree.name}", tree.size, remove, used, reason)


def _oldest_submission(host: Host, backends: list[str]) -> float:
    """Return when the oldest app that has not ended was submitted, in epoch seconds."""
    oldest = float("inf")
    for backend in backends:
        plugin = get_manager().schedulers().find(backend)
        scheduler = plugin.load()("prune", host=host) if plugin is not None else None
        if not isinstance(scheduler, BatchScheduler):
            return 0.0  # its apps are not known
        for app in scheduler.list():
            if not is_terminal(app.state):
                entry = scheduler._entry(app.app_id)
                oldest = min(oldest, entry.submitted if entry is not None else 0.0)
    return oldest


def _remove(host: Host, folder: str, name: str, used_ns: int) -> None:
    if not host.remove_tree_if_unused(folder, name, used_ns):
        raise PruneError(f"{folder}/{name} was not removed: a submission has just used it")
