"""The runs of jobs in trackers."""

from __future__ import annotations

import re

from torchx_specs.model.handles import make_app_handle, parse_app_handle


def run_ids(handle: str) -> list[str]:
    """Return the ids that the run of a job may have in a tracker; the first is the handle.

    A job names its run by the handle in its variable ``TORCHX_JOB_ID``. The handle of a submitted
    app may be longer: it can contain the context of a Kubernetes cluster, the queue of AWS Batch or
    the cluster of Slurm.

    >>> run_ids("slurm://torchx/12_3;main"), run_ids("local_cwd://torchx/train-x1")
    (['slurm://torchx/12_3;main', 'slurm://torchx/12_3'], ['local_cwd://torchx/train-x1'])
    """
    scheduler, session, app_id = parse_app_handle(handle)
    without_end = re.split("[;@]", app_id)[0]
    without_queue = without_end.rpartition(":")[2]
    ids = [make_app_handle(scheduler, session, part) for part in (without_end, without_queue)]
    return list(dict.fromkeys([handle, *ids]))
