"""Finds the folders of local apps that ended long ago, for ``torchx workspace prune``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from torchx_kit.workspace.pruning import DEFAULT_AGE, tree_size
from torchx_sched_local.store import index, layout
from torchx_sched_local.store.stored_app import StoredApp
from torchx_specs.errors import BackendError
from torchx_specs.workspace.pruning import Prunable, PruneQuery


def unused_apps(query: PruneQuery) -> Iterator[Prunable]:
    """Yield the apps in ``$TORCHX_HOME/local`` that ended longer ago than the requested age.

    Args:
        query: The user's request; the age of an app is the time since its end. Without an age,
            :data:`DEFAULT_AGE` applies.
    """
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    base = os.path.realpath(layout.base_folder())
    for app_id in index.app_ids():
        with contextlib.suppress(BackendError):  # torchx status reports a record that is unreadable
            app = StoredApp.find(app_id)
            # has_ended() records the end of an app whose supervisor has died.
            if app is None or not app.has_ended():
                continue
            path, ended = app.folder.path, app.refresh().last_updated
            is_old = 0.0 < ended < time.time() - age
            if is_old and os.path.realpath(path).startswith(base + os.sep):
                yield Prunable(path, tree_size(path), app.delete, ended)
