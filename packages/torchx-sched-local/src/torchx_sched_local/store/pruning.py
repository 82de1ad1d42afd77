"""Finds the folders of local apps that ended long ago, for ``torchx workspace prune``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torchx_kit.workspace.pruning import DEFAULT_AGE, PruneError, tree_size
from torchx_sched_local.store import index, retention
from torchx_sched_local.store.stored_app import StoredApp
from torchx_specs.errors import BackendError
from torchx_specs.workspace.pruning import Prunable, PruneQuery


def unused_apps(query: PruneQuery) -> Iterator[Prunable]:
    """Yield the apps in ``$TORCHX_HOME/local`` that ended longer ago than the requested age.

    Args:
        query: The user's request; the age of an app is the time since its end. Without an age,
            :data:`DEFAULT_AGE` applies.
    """
    for app_id in index.app_ids():
        try:
            app = StoredApp.find(app_id)
            if app is not None:
                app.has_ended()  # records the end of an app whose supervisor has died
        except BackendError:
            continue  # torchx status reports that the record cannot be read
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    for app_id, folder, ended in retention.ended_apps(age):
        yield Prunable(folder.path, tree_size(folder.path), partial(_delete, app_id), ended)


def _delete(app_id: str) -> None:
    folder = index.find(app_id)
    if folder is None:
        return
    try:
        folder.delete()
    except OSError as e:
        raise PruneError(f"cannot remove {folder.path}: {e.strerror or e}") from None
    index.remove(app_id)
