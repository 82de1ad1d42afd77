"""Arguments of components that hold more than one value: ``-j 2x8``, ``--name experiment/run``."""

from __future__ import annotations

import os.path
import re
import warnings
from dataclasses import dataclass

import torchx_specs as specs
from torchx_specs.errors import ComponentArgumentError

_J = re.compile(r"(?:(?P<min>[0-9]+):)?(?P<nodes>[0-9]+)(?:x(?P<nproc>[0-9]+))?")


@dataclass
class StructuredNameArgument:
    """The experiment and the run that ``--name`` gives.

    >>> StructuredNameArgument.parse_from("mnist/lr-0.1", m="trainers.main")
    StructuredNameArgument(experiment_name='mnist', run_name='lr-0.1')
    >>> str(StructuredNameArgument.parse_from("mnist/", m="trainers.main"))
    'mnist/main'

    Attributes:
        experiment_name: What runs are grouped by.
        run_name: This run, which is also the name of the job.
    """

    experiment_name: str
    run_name: str

    def __str__(self) -> str:
        return f"{self.experiment_name}/{self.run_name}"

    @staticmethod
    def parse_from(
        name: str,
        m: str | None = None,
        script: str | None = None,
        default_experiment_name: str = "default-experiment",
    ) -> StructuredNameArgument:
        """Reads ``experiment/run``, ``experiment/``, ``/run`` or ``run``.

        Args:
            name: The argument; what follows the first ``/`` is the run's name.
            m: The main module, whose last part is the name of a run without one.
            script: Or the main script, whose file name without suffix is it.
            default_experiment_name: The name of an experiment without one.

        Raises:
            ComponentArgumentError: Not exactly one of ``m`` and ``script`` is given (also a
                ValueError).
        """
        if not m and not script:
            raise ComponentArgumentError(
                "No main module or script specified. Specify either a main module or a script path"
            )
        if m and script:
            raise ComponentArgumentError(
                "Both main module and script set."
                " Specify exactly one of: main module or script, but not both"
            )
        experiment, slash, run = name.partition("/")
        if not slash:
            experiment, run = "", name
        return StructuredNameArgument(
            experiment or default_experiment_name, run or main_name(script or None, m)
        )


@dataclass
class StructuredJArgument:
    """The nodes, and the processes on each, that ``-j`` gives.

    >>> str(StructuredJArgument.parse_from("gpu.medium", "2"))
    '2x2'
    >>> str(StructuredJArgument.parse_from("cpu.small", "1:2x4"))
    '1:2x4'

    Attributes:
        nnodes: Nodes, the most there can be if the job is elastic.
        nproc_per_node: Processes on each.
        min_nnodes: With how many nodes an elastic job goes on; None if it is not elastic.
    """

    nnodes: int
    nproc_per_node: int
    min_nnodes: int | None = None

    def __str__(self) -> str:
        elastic = "" if self.min_nnodes is None else f"{self.min_nnodes}:"
        return f"{elastic}{self.nnodes}x{self.nproc_per_node}"

    @staticmethod
    def parse_from(h: str, j: str) -> StructuredJArgument:
        """Reads ``[min_nnodes:]nnodes[xnproc_per_node]``.

        Args:
            h: A named resource; its GPUs are the processes on each node unless ``j`` says them.
            j: The argument.

        Raises:
            ComponentArgumentError: ``j`` is malformed or holds a 0, or ``h`` has no GPU to
                count (also a ValueError).
            NamedResourceNotFoundError: There is no resource ``h`` (also a KeyError).
        """
        parsed = _J.fullmatch(j)
        if not parsed:
            raise ComponentArgumentError(
                "Invalid format for -j, usage example: 2 or 2x8 or 1:2x8,"
                f" as in [min_nnodes:]nnodes[xnproc_per_node]. Given: {j}",
                parameter="j",
            )
        gpus = specs.resource(h=h).gpu
        nnodes = int(parsed["nodes"])
        nproc_per_node = int(parsed["nproc"]) if parsed["nproc"] else gpus
        if not parsed["nproc"] and gpus <= 0:
            raise ComponentArgumentError(
                f"nproc_per_node cannot be inferred from GPU count. `{h}` is not a GPU instance."
                f" You must specify `-j $NNODESx$NPROCS_PER_NODE` (e.g. `-j {j}x8`)",
                parameter="j",
            )
        min_nnodes = int(parsed["min"]) if parsed["min"] else None
        check_counts(j, nnodes if min_nnodes is None else min_nnodes, nnodes, nproc_per_node)
        if nproc_per_node != gpus > 0:
            nodes = j.partition("x")[0]
            warnings.warn(
                f"In `-j {j}` you specified nproc_per_node={nproc_per_node} which does not equal"
                f" the number of GPUs on a {h}: {gpus}. This may lead to under-utilization or an"
                f" error. If this was intentional, ignore this warning. Otherwise set `-j {nodes}`"
                " to auto-set nproc_per_node to the number of GPUs on the host.",
                stacklevel=2,
            )
        return StructuredJArgument(nnodes, nproc_per_node, min_nnodes)


def check_counts(j: str, min_nnodes: int, max_nnodes: int, nproc_per_node: int) -> None:
    """Raises if what ``-j`` says cannot be run.

    Raises:
        ComponentArgumentError: A count is 0, or the minimum exceeds the maximum.
    """
    if min(min_nnodes, max_nnodes, nproc_per_node) < 1:
        raise ComponentArgumentError(
            f"Invalid -j {j}: nodes and processes per node must be at least 1", parameter="j"
        )
    if min_nnodes > max_nnodes:
        raise ComponentArgumentError(
            f"Invalid -j {j}: the minimum of {min_nnodes} nodes exceeds the maximum of"
            f" {max_nnodes}; did you mean {max_nnodes}:{min_nnodes}x{nproc_per_node}?",
            parameter="j",
        )


def main_name(script: str | None, m: str | None) -> str:
    """Names a job's main program: a script's file name without suffix, a module's last part.

    >>> main_name("trainers/main.py", None), main_name(None, "trainers.main")
    ('main', 'main')

    Raises:
        ComponentArgumentError: Neither is given.
    """
    if script is not None:
        return os.path.splitext(os.path.basename(script.rstrip("/")))[0]
    if m is not None:
        return m.rpartition(".")[2]
    raise ComponentArgumentError("failed to compute role_name: neither a script nor a module given")
