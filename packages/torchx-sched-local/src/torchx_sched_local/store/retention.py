"""Deletes old apps if the environment variable ``TORCHX_LOCAL_RETENTION`` is set.

The variable's value is a number with a unit, such as ``12h``, ``30d`` or ``8w``. Whenever an app
ends, all apps in ``$TORCHX_HOME/local`` that ended longer ago than that are deleted with their
logs. Without the variable, no app is deleted. Apps with a ``log_dir`` elsewhere are never deleted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from torchx_kit.times import parse_limit
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.app_folder import AppFolder

ENV_RETENTION = "TORCHX_LOCAL_RETENTION"


def retention_seconds() -> float | None:
    """Return how long to keep apps that have ended, in seconds.

    Returns:
        The time; None, which means without a limit, if the variable is not set or not valid.
    """
    return parse_limit(os.environ.get(ENV_RETENTION, "").replace(" ", ""))


def delete_old_apps() -> None:
    """Delete the apps that ended more than :func:`retention_seconds` ago."""
    keep = retention_seconds()
    if keep is None:
        return
    for app_id, folder, _ in ended_apps(keep):
        try:
            folder.delete()
        except OSError:
            continue  # the next app that ends tries again
        index.remove(app_id)


def ended_apps(age: float) -> Iterator[tuple[str, AppFolder, float]]:
    """Yield the apps in ``$TORCHX_HOME/local`` that ended more than ``age`` seconds ago.

    Yields:
        The app's id, its folder, and the time of its end in seconds since 1970.
    """
    base = os.path.realpath(layout.base_folder())
    now = time.time()
    for app_id in index.app_ids():
        folder = index.find(app_id)
        if folder is None or not os.path.realpath(folder.path).startswith(base + os.sep):
            continue
        ended = folder.read_end()
        if ended is not None and now - ended[1] > age:
            yield app_id, folder, ended[1]
