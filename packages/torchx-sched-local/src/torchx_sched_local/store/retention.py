"""How long the records of ended apps are kept.

For ever, unless ``$TORCHX_LOCAL_RETENTION`` says otherwise: a number with a unit, as in ``12h``,
``30d`` or ``8w``. Whenever an app has ended, those that ended longer ago are removed, with their
logs. Only apps in ``$TORCHX_HOME/local`` are: what has a ``log_dir`` of its own stays there.
"""

from __future__ import annotations

import os
import re
import time

from torchx_sched_local.store import index, layout

ENV_RETENTION = "TORCHX_LOCAL_RETENTION"

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds_to_keep() -> float | None:
    """Returns how long the records of an ended app are kept, in seconds; None is for ever.

    What cannot be understood is for ever as well.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", os.environ.get(ENV_RETENTION, ""))
    return float(found[1]) * _UNITS[found[2]] if found else None


def remove_old() -> None:
    """Removes the records of apps that have ended long ago."""
    keep = seconds_to_keep()
    if keep is None:
        return
    import shutil

    base = os.path.realpath(layout.base_folder())
    now = time.time()
    for app_id in index.app_ids():
        folder = index.find(app_id)
        if folder is None or not os.path.realpath(folder.path).startswith(base + os.sep):
            continue
        ended = folder.read_end()
        if ended is not None and now - ended[1] > keep:
            shutil.rmtree(folder.path, ignore_errors=True)
            index.remove(app_id)
