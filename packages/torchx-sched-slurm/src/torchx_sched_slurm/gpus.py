"""The GPUs of a cluster: one query of all nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchx_specs.schedulers.api import GpuCounts

if TYPE_CHECKING:
    from torchx_sched_slurm.system import Slurm

# States of nodes that start no jobs; a state may be followed by flags, as in IDLE+DRAIN. Slurm
# starts a node that is powered down when a job needs it.
_CLOSED = re.compile(r"\bDOWN|DRAIN|FAIL|MAINT|NOT_RESPONDING|UNKNOWN|FUTURE")


def count_gpus(slurm: Slurm) -> GpuCounts:
    """Return how many GPUs of the cluster are free, in use and unavailable.

    Raises:
        BatchError: The nodes cannot be queried.
    """
    output = slurm.run_idempotent("scontrol", "--details", "--oneliner", "show", "nodes")
    return GpuCounts.of_nodes(parse_nodes(output))


def parse_nodes(output: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the GPUs of each node, those in use, and whether the node can start jobs.

    >>> list(parse_nodes("NodeName=n Gres=gpu:a:4(S:0-1) GresUsed=gpu:a:1(IDX:0) State=MIXED"))
    [(4, 1, True)]

    Args:
        output: Output of ``scontrol --details --oneliner show nodes``.
    """
    for line in output.splitlines():
        fields = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        if "NodeName" in fields:
            state = fields.get("State", "UNKNOWN")
            is_open = not _CLOSED.search(state) and "*" not in state
            yield _gpus(fields.get("Gres", "")), _gpus(fields.get("GresUsed", "")), is_open


def _gpus(gres: str) -> int:
    """Return the number of GPUs in a list of generic resources.

    >>> _gpus("gpu:a100:4(S:0-1),gpu:2(IDX:0,1),shard:8"), _gpus("(null)")
    (6, 0)
    """
    return sum(map(int, re.findall(r"(?:^|,)gpu(?::[^:,()]+)??:(\d+)(?=[(,]|$)", gres)))
