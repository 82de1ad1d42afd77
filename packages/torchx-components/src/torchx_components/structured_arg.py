"""Component arguments with several parts: ``-j 2x8`` and ``--name experiment/run``."""

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
    """The experiment and run of ``--name``.

    >>> StructuredNameArgument.parse_from("mnist/lr-0.1", m="trainers.main")
    StructuredNameArgument(experiment_name='mnist', run_name='lr-0.1')
    >>> str(StructuredNameArgument.parse_from("mnist/", m="trainers.main"))
    'mnist/main'

    Attributes:
        experiment_name: Name of the experiment, a group of runs.
        run_name: Name of the run, and of the job.
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
        """Parse ``experiment/run``, ``experiment/``, ``/run`` or ``run``.

        Args:
            name: The argument; the first ``/`` separates experiment and run.
            m: The main module; its last part is the default name of the run.
            script: The main script; its file name without suffix is the default name of the run.
            default_experiment_name: Name of the experiment if the argument has none.

        Raises:
            ComponentArgumentError: Neither or both of ``m`` and ``script`` are given.
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
    """The nodes and processes per node of ``-j``.

    >>> str(StructuredJArgument.parse_from("gpu.medium", "2"))
    '2x2'
    >>> str(StructuredJArgument.parse_from("cpu.small", "1:2x4"))
    '1:2x4'

    Attributes:
        nnodes: Number of nodes; the largest number if the job is elastic.
        nproc_per_node: Number of processes per node.
        min_nnodes: Smallest number of nodes of an elastic job, otherwise None.
    """

    nnodes: int
    nproc_per_node: int
    min_nnodes: int | None = None

    def __str__(self) -> str:
        elastic = "" if self.min_nnodes is None else f"{self.min_nnodes}:"
        return f"{elastic}{self.nnodes}x{self.nproc_per_node}"

    @staticmethod
    def parse_from(h: str, j: str) -> StructuredJArgument:
        """Parse ``[min_nnodes:]nnodes[xnproc_per_node]``.

        Args:
            h: Name of a resource; its number of GPUs is the default of ``nproc_per_node``.
            j: The argument.

        Raises:
            ComponentArgumentError: ``j`` is malformed or contains a 0, the smallest number of nodes
                exceeds the largest, or ``nproc_per_node`` is missing and ``h`` has no GPU.
            NamedResourceNotFoundError: The resource ``h`` does not exist.
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
    """Raise an error unless the numbers of ``-j`` are valid.

    Args:
        j: The argument, for the error message.
        min_nnodes: Smallest number of nodes.
        max_nnodes: Largest number of nodes.
        nproc_per_node: Number of processes per node.

    Raises:
        ComponentArgumentError: A number is 0, or the smallest number of nodes exceeds the largest.
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
    """Return a script's file name without suffix, or the last part of a module's name.

    >>> main_name("trainers/main.py", None), main_name(None, "trainers.main")
    ('main', 'main')

    Raises:
        ComponentArgumentError: Both arguments are None.
    """
    if script is not None:
        return os.path.splitext(os.path.basename(script.rstrip("/")))[0]
    if m is not None:
        return m.rpartition(".")[2]
    raise ComponentArgumentError("failed to compute role_name: neither a script nor a module given")
