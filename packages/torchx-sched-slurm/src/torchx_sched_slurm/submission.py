"""The submission of a job or of an array: the files of its record, and the call of sbatch."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchx_kit.batch.entries import RoleEntry
from torchx_kit.batch.system import NativeJob
from torchx_kit.hosts.api import Host
from torchx_kit.jobs.arrays import task_files, task_line
from torchx_kit.jobs.attempts import attempt_rules
from torchx_kit.jobs.submitter import this_process
from torchx_kit.names.ids import random_id
from torchx_kit.names.limits import BATCH_JOB, fit_name
from torchx_kit.secrets import hidden_secrets
from torchx_sched_slurm.job_files.job_dirs import fixed_part
from torchx_sched_slurm.job_files.records import NAMES, SlurmEntry, record_path
from torchx_sched_slurm.job_files.script import SCRIPT
from torchx_sched_slurm.jobs import selector
from torchx_sched_slurm.options import overridden_variables
from torchx_sched_slurm.request import SlurmBatchRequest
from torchx_sched_slurm.system import Slurm
from torchx_specs.errors import CapacityError
from torchx_specs.model.templates import macros

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDryRunInfo

#: Part of the message of sbatch about too much memory, in lower case.
MEMORY_MESSAGE = "memory specification can not be satisfied"
# If sinfo reports at most this memory for a partition's nodes, the memory of these nodes was
# probably not configured: Slurm's default is 1 MB.
_UNMANAGED_MEMORY_MB = 1000
# Variables that configure Slurm's commands, not jobs.
_CLIENT_VARIABLES = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"}
)


@dataclass
class SlurmSubmission:
    """A job or an array to submit; see :class:`~torchx_kit.batch.request.BatchRequest`.

    Attributes:
        system: The client.
        request: The request, as the dry run shows it.
        name: Name of the app.
        app_id: The mark: a random id, which is part of the path of the job's script. The final id
            is the number of the job.
        elements: The submissions of single apps if this is an array.
    """

    system: Slurm
    request: SlurmBatchRequest
    name: str
    app_id: str = field(default_factory=lambda: random_id(12))
    elements: Sequence[SlurmSubmission] = ()

    @classmethod
    def from_dryrun(cls, system: Slurm, info: AppDryRunInfo[SlurmBatchRequest]) -> SlurmSubmission:
        """Return the submission of a dry run."""
        return cls(system, info.request, info.app.name if info.app else info.request.job_name)

    @property
    def folder(self) -> str:
        """The directory of records; it differs from that of the logs if the job creates that."""
        job_dir = self.request.job_dir
        return self.system.host.resolve(fixed_part(job_dir)) if job_dir else ""

    def entry(self, folder: str, jobs: Sequence[Sequence[NativeJob]]) -> SlurmEntry:
        """Return the index entry before the submission, whose id is the mark.

        Args:
            folder: The directory of records.
            jobs: The result of :meth:`jobs`.
        """
        names = {role.name: key for key, role in self.request.replicas.items()}
        roles = [
            RoleEntry(names[role.name], role.name, role.num_replicas)
            for group in self.request.groups()
            for role in group
        ]
        roles[0].jobs = [""]
        return SlurmEntry(
            self.app_id,
            self.elements[0].name if self.elements else self.name,
            self._logs(folder),
            record_path(folder, self.app_id),
            roles,
            time.time(),
            submitter=this_process(),
            names=[element.name for element in self.elements],
        )

    def _logs(self, folder: str) -> str:
        job_dir = self.request.job_dir
        return self.system.host.resolve(job_dir) if job_dir else folder

    def jobs(self, folder: str) -> list[list[NativeJob]]:
        """Return the job.

        Args:
            folder: The directory of records.
        """
        script = posixpath.join(record_path(folder, self.app_id), SCRIPT)
        return [[NativeJob(self.name, [script], folder, self.request.cmd[1:])]]

    def files(self, record: str) -> Iterator[tuple[str, str]]:
        """Yield the names and contents of the record's files."""
        folder = posixpath.dirname(posixpath.dirname(record))
        request = replace(self.request, record=record, job_dir=self._logs(folder))
        if request.opts.resume_dir:
            resume_dir = self.system.host.resolve(request.opts.resume_dir)
            request.opts = replace(request.opts, resume_dir=resume_dir)
        yield SCRIPT, request.materialize()
        if self.elements:
            yield NAMES, json.dumps([element.name for element in self.elements])
            yield from task_files(
                task_line(replace(element.request, record=record).commands())
                for element in self.elements
            )

    def hidden_variables(self) -> dict[str, None]:
        """Return the variables that sbatch does not get; their values are None."""
        host = self.system.host
        hidden = {} if self.request.opts.inherit_env else _surrounding_job(host)
        hidden |= hidden_secrets(host)
        for role in self.request.replicas.values():
            hidden |= overridden_variables(role.component_opts(""))
        return hidden

    # Arrays.

    def variations(self) -> object:
        """Return what jobs of one array have in common; None if the job can be in no array.

        Heterogeneous jobs, jobs whose ``job_dir`` contains ``${app_id}``, and jobs with the option
        ``requeue`` cannot.
        """
        if len(self.request.groups()) != 1 or macros.app_id in (self.request.job_dir or ""):
            return None
        if attempt_rules(self.request.opts) is not None:
            return None  # each job has attempts of its own
        replicas = {
            name: replace(role, args=[], env={}) for name, role in self.request.replicas.items()
        }
        return replace(self.request, replicas=replicas, job_name="")

    def environments(self) -> list[Mapping[str, str]]:
        """Return the variables of all roles."""
        jobs = self.elements or [self]
        return [role.env for job in jobs for role in job.request.replicas.values()]

    def as_array(
        self, elements: Sequence[SlurmSubmission], name: str, limit: int | None, previous: str
    ) -> SlurmSubmission:
        """Return the submission of an array of jobs like this one.

        Args:
            elements: The jobs.
            name: Name of the array.
            limit: How many tasks may run at the same time; None means without a limit.
            previous: Id of an array that must end before this one starts; empty for none.

        Raises:
            CapacityError: The array must be submitted after the end of the earlier array.
        """
        role = next(iter(self.request.replicas.values()))
        dependency = role.sbatch_opts.get("dependency") or ""
        options = array_options(len(elements), limit, selector(previous), dependency)
        request = replace(
            self.request,
            cmd=[*self.request.cmd, *options],
            job_name=fit_name(name, BATCH_JOB),
            is_array=True,
        )
        return SlurmSubmission(self.system, request, name, elements=elements)

    def without_memory(self) -> SlurmSubmission:
        """Return the submission without a request for memory."""
        roles = {}
        for key, role in self.request.replicas.items():
            opts = {name: value for name, value in role.sbatch_opts.items() if name != "mem"}
            roles[key] = replace(role, sbatch_opts=opts)
        return replace(self, request=replace(self.request, replicas=roles))

    def is_memory_unmanaged(self) -> bool:
        """Return whether the memory of the nodes was probably not configured."""
        partitions = {role.sbatch_opts.get("partition") for role in self.request.replicas.values()}
        memory: dict[str | None, int] = {}
        for line in self.system.run("sinfo", "-h", "--noconvert", "-o", "%P,%m").split():
            name, _, size = line.partition(",")
            digits = size.rstrip("+")
            if digits.isdigit():
                memory[name.rstrip("*")] = int(digits)
                if name.endswith("*"):  # the default partition
                    memory[None] = int(digits)
        most = _UNMANAGED_MEMORY_MB
        return all(memory.get(name, most + 1) <= most for name in partitions)


def array_options(tasks: int, limit: int | None, previous: str, dependency: str = "") -> list[str]:
    """Return the options of sbatch for an array.

    An array that waits for an earlier array also waits for the user's dependency: if that is never
    met, Slurm may cancel the earlier array, which would release this one. Slurm cannot combine
    alternatives (``afterok:1?afterok:2``) with another condition. With alternatives, the later
    array must be submitted after the end of the earlier array.

    Args:
        tasks: The number of tasks.
        limit: How many tasks may run at the same time; None means without a limit.
        previous: Number of the array that must end before this one starts; empty for none.
        dependency: The user's option ``dependency``; empty if it is not set.

    Raises:
        CapacityError: The array must be submitted after the end of the earlier array.
    """
    options = [f"--array=0-{tasks - 1}" + ("" if limit is None else f"%{limit}")]
    if previous:
        if "?" in dependency:  # the separator of alternative conditions
            raise CapacityError(
                f"the next array must wait for the end of array {previous}, and Slurm"
                f" cannot combine that with the alternatives dependency={dependency!r};"
                " submit the other apps when that array has ended"
            )
        conditions = filter(None, (dependency, f"afterany:{previous}"))
        options.append(f"--dependency={','.join(conditions)}")
    return options


def _surrounding_job(host: Host) -> dict[str, None]:
    """Return the variables of a surrounding Slurm job that would change the new job.

    The value None removes a variable. Outside of a Slurm job, return an empty dict, because
    such variables are then the user's defaults for sbatch.
    """
    names = host.variable_names()
    if "SLURM_JOB_ID" not in names:
        return {}
    return dict.fromkeys(
        name
        for name in names
        if name.startswith(("SBATCH_", "SLURM_", "SRUN_")) and name not in _CLIENT_VARIABLES
    )
