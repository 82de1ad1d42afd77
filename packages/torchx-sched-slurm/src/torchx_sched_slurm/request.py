"""The native request: a batch script, and the command that submits it."""

from __future__ import annotations

import json
import posixpath
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchx_kit.batch.entries import RoleEntry
from torchx_kit.batch.system import NativeJob
from torchx_kit.jobs.arrays import task_files, task_line
from torchx_kit.jobs.attempts import attempt_rules
from torchx_kit.jobs.submitter import this_process
from torchx_kit.names.ids import random_id
from torchx_kit.names.limits import BATCH_JOB, fit_name
from torchx_kit.role_checks import for_each_role
from torchx_kit.scripts.containers import (
    apptainer_command,
    apptainer_env,
    bind_mounts,
    enroot_image,
)
from torchx_kit.scripts.job_script import env_command
from torchx_kit.scripts.shell import join, quote, quote_around, quote_ascii
from torchx_kit.secrets import hidden_secrets, secret_refs
from torchx_kit.workspace.host_dir import fixed_part, is_tree
from torchx_kit.workspace.mixin import planned_build
from torchx_sched_slurm.job_files import script
from torchx_sched_slurm.job_files.records import NAMES, SlurmEntry, record_path
from torchx_sched_slurm.jobs import selector
from torchx_sched_slurm.options import (
    DIRECTIVES,
    SBATCH_GROUP_OPTIONS,
    SlurmOpts,
    directive,
    excluded,
    overridden_variables,
)
from torchx_sched_slurm.system import Slurm
from torchx_specs.errors import CapacityError
from torchx_specs.model.app import Role
from torchx_specs.model.templates import macros
from torchx_specs.redaction import masked_text

#: Part of the message of sbatch about too much memory, in lower case.
MEMORY_MESSAGE = "memory specification can not be satisfied"
# If sinfo reports at most this memory for a partition's nodes, the memory of these nodes was
# probably not configured: Slurm's default is 1 MB.
_UNMANAGED_MEMORY_MB = 1000


@dataclass
class SlurmReplicaRequest:
    """The request for a role: its command, and the nodes and options that it needs.

    Attributes:
        name: Name of the role in log file names.
        entrypoint: The program.
        args: Arguments of the program; they may contain macros.
        srun_opts: Options of srun by name. The value of a flag is None.
        sbatch_opts: Directives (options of sbatch) by name. The value of a flag is None.
        env: Environment variables; the values may contain macros.
        num_replicas: Number of replicas.
        replicas_per_node: Number of replicas on one node.
        max_retries: How many times a failed replica is restarted on its node.
        img_root: Value of the macro ``${img_root}``.
        prefix: Apptainer's command line, which precedes the program; empty without Apptainer.
        snapshot: Copy of the workspace in which the program runs; empty for the job's directory.
    """

    name: str
    entrypoint: str
    args: list[str]
    srun_opts: dict[str, str | None]
    sbatch_opts: dict[str, str | None]
    env: dict[str, str]
    num_replicas: int = 1
    replicas_per_node: int = 1
    max_retries: int = 0
    img_root: str = ""
    prefix: list[str] = field(default_factory=list)
    snapshot: str = ""

    @classmethod
    def from_role(
        cls,
        name: str,
        role: Role,
        cfg: Mapping[str, Any],
        nomem: bool = False,
        container_image: str | None = None,
    ) -> SlurmReplicaRequest:
        """Return the request for a role with one replica; set ``num_replicas`` afterwards.

        Args:
            name: Name of the role in log file names.
            role: The role.
            cfg: The options.
            nomem: Do not request memory, like the option ``nomem``.
            container_image: Run this image with Pyxis. Default: ``role.image`` if the option
                ``container`` is pyxis, otherwise no image.

        Raises:
            RequestError: The container runtime does not support one of the role's mounts, or an
                item of the options ``extra`` and ``srun`` is not valid.
        """
        opts = cfg if isinstance(cfg, SlurmOpts) else SlurmOpts.from_cfg(cfg)
        per_node = opts.replicas_per_node
        # By default, Slurm truncates the output of the script when it requeues the job.
        sbatch: dict[str, str | None] = {"requeue": None, "open-mode": "append"}
        for key in (*sorted(SBATCH_GROUP_OPTIONS), *DIRECTIVES):
            value = opts.time_limit if key == "time" else opts[key]
            if value:
                sbatch[key] = str(value)
        if opts.requeue or opts.resume_dir:
            sbatch.setdefault("signal", script.NOTICE)
        if opts.exclusive:
            sbatch["exclusive"] = None
        resource = role.resource
        derived: dict[str, str | None] = {"ntasks-per-node": str(per_node)}
        if resource.cpu > 0:
            derived["cpus-per-task"] = str(resource.cpu)
        if resource.memMB > 0 and not (nomem or opts.nomem):
            derived["mem"] = str(resource.memMB * per_node)
        if resource.gpu > 0:
            derived.update(_gpus(opts, resource.gpu))
        own = dict(directive(text) for text in opts.extra or ())
        replaced = {name for item in own.items() for name in excluded(*item)}
        sbatch.update((key, value) for key, value in derived.items() if key not in replaced)
        sbatch.update(own)
        srun: dict[str, str | None] = {}
        if "cpus-per-task" in sbatch:  # a step does not inherit it from the job
            srun["cpus-per-task"] = sbatch["cpus-per-task"]
        srun.update(directive(text) for text in opts.srun or ())
        image, copy = image_and_copy(role)
        job_dir = opts.job_dir or ""
        moved = is_tree(copy) and macros.app_id in job_dir  # the job copies the snapshot there
        request = cls(
            name=name,
            entrypoint=role.entrypoint,
            args=list(role.args),
            srun_opts=srun,
            sbatch_opts=sbatch,
            env=dict(role.env),
            replicas_per_node=per_node,
            img_root=job_dir if moved else role.image,
            snapshot=copy if is_tree(copy) else "",
        )
        if container_image or opts.container == "pyxis":
            request._use_pyxis(role, container_image or image)
        elif opts.container == "apptainer":
            request._use_apptainer(replace(role, image=image))
        return request

    def materialize(self) -> tuple[list[str], list[str]]:
        """Return the options of sbatch, and the arguments that follow ``srun`` in a script.

        The arguments are options of srun, the program, and the program's arguments, each quoted for
        the shell. Shell variables replace the macros. Programs for older TorchX releases call this
        method; :meth:`SlurmBatchRequest.materialize` does not.
        """
        directives = [script.option(*item) for item in self.component_opts(self.name).items()]
        env = [f"{key}={value}" for key, value in self.env.items()]
        options = {**self.srun_opts, "export": ",".join(["ALL", *env])}
        srun = [f"--{k}" if v is None else f"--{k}={v}" for k, v in options.items()]
        variables = {
            macros.img_root: quote(self.img_root),
            macros.app_id: '"$SLURM_JOB_ID"',
            macros.replica_id: '"$SLURM_PROCID"',
        }
        words = [*srun, *self.prefix, self.entrypoint, *self.args]
        return directives, [quote_around(word, variables) for word in words]

    def component_opts(self, job_name: str, replicas: int | None = None) -> dict[str, str | None]:
        """Return the directives of the Slurm job component that runs this role.

        Args:
            job_name: The job's name.
            replicas: Number of replicas of all roles in the component (default: of this role).
        """
        count = self.num_replicas if replicas is None else replicas
        nodes = -(-count // self.replicas_per_node)
        opts: dict[str, str | None] = {"job-name": job_name, "nodes": str(nodes)}
        if self.replicas_per_node > 1:
            opts["ntasks"] = str(count)
        return {**opts, **self.sbatch_opts}

    def command_lines(self, mask: bool = False, folder: str = "") -> list[str]:
        """Return the lines of the role's function in the script.

        Args:
            mask: Whether to mask secrets (:mod:`torchx_specs.redaction`).
            folder: Working directory of the program; empty for the job's directory.

        Raises:
            RequestError: An argument or environment variable cannot be passed to a process.
        """
        enter = [f"cd -- {quote_ascii(folder)} || exit"] if folder else []
        quoting = script.role_quoting(self.img_root)
        exports, env_args = quoting.exports(self.env, mask=mask)
        is_contained = bool(self.prefix)
        program = quoting.command(self.entrypoint, self.args, mask=mask, in_container=is_contained)
        words = [*map(quote_ascii, self.prefix), *env_command(env_args, self.entrypoint), *program]
        return [*enter, *exports, " ".join(["exec", "--", *words])]

    def _use_pyxis(self, role: Role, image: str) -> None:
        self.img_root = ""
        self.srun_opts["container-image"] = enroot_image(image)
        # the container needs the job's directory, because the record and the logs are there
        mounts = [script.WORK_FOLDER, *bind_mounts(role, "Pyxis")]
        if secret_refs(self.env):
            mounts.append(script.SECRETS)
        self.srun_opts["container-mounts"] = ",".join(mounts)

    def _use_apptainer(self, role: Role) -> None:
        self.img_root = ""
        self.prefix = apptainer_command(role)
        self.env = apptainer_env(self.env)


@dataclass
class SlurmBatchRequest:
    """The request for a job or an array; see :class:`~torchx_kit.batch.request.BatchRequest`.

    Attributes:
        cmd: sbatch and its options, without the script.
        replicas: The requests for the roles, by role name.
        job_dir: Working directory; None means the current directory.
        max_retries: How many times the job is requeued if it fails.
        images_to_push: Ignored; kept for code written for upstream's TorchX.
        job_name: The job's name.
        record: Directory of the job's record; None means a directory named by the job's number.
        opts: The options of the scheduler that concern the script.
        system: The client.
        name: Name of the app.
        app_id: The mark: a random id, which is part of the path of the job's script. The final id
            is the number of the job. Empty before the submission.
        elements: The requests for single apps if this is an array.
    """

    cmd: list[str]
    replicas: dict[str, SlurmReplicaRequest]
    job_dir: str | None
    max_retries: int
    images_to_push: tuple[str, Any] | None = None
    job_name: str = ""
    record: str | None = None
    opts: SlurmOpts = field(default_factory=SlurmOpts)
    system: Slurm = field(default_factory=Slurm)
    name: str = ""
    app_id: str = ""
    elements: Sequence[SlurmBatchRequest] = ()

    def materialize(self, *, mask: bool = False) -> str:
        """Return the batch script.

        Without ``record``, as in a dry run, the script does not use the snapshot of the workspace:
        the snapshot is made at submission.

        Args:
            mask: Whether to mask secrets (:mod:`torchx_specs.redaction`).

        Raises:
            RequestError: An argument or environment variable cannot be passed to a process, or
                sbatch cannot read the value of a directive.
        """
        name = self.job_name or "-".join(self.replicas) or "torchx"
        components = []
        sruns = []
        for group in self.groups():
            count = sum(role.num_replicas for role in group)
            directives = group[0].component_opts(fit_name(name, BATCH_JOB), count)
            lines = [f"#SBATCH {script.option(*item)}" for item in directives.items()]
            components.append("\n".join(lines))
            nodes = {"nodes": str(directives["nodes"]), "ntasks": str(count)}
            options = script.srun_options({**nodes, **group[0].srun_opts})
            words = 'bash "$tx_record/script" replica "$tx_record" "$tx_logs"'
            sruns.append(f'{options} \\\n    {words} "$tx_job" "$tx_start"')
        first = "srun --export=ALL --wait=0 --kill-on-bad-exit=1"
        return script.render(
            self,
            "\n#SBATCH hetjob\n".join(components),
            f"{first} \\\n    " + " : \\\n    ".join(sruns),
            self.commands(mask),
        )

    def commands(self, mask: bool = False) -> list[list[str]]:
        """Return the lines of each role's function; ``mask`` is as for :meth:`materialize`.

        Raises:
            RequestError: An argument or environment variable cannot be passed to a process.
        """
        moves = self.record is None or self.moves
        return for_each_role(
            [role for group in self.groups() for role in group],
            lambda role: role.command_lines(mask, "" if moves else role.snapshot),
        )

    @property
    def moves(self) -> bool:
        """Whether the job creates its directory and copies the workspace to it."""
        return self.record is not None and macros.app_id in (self.job_dir or "")

    def groups(self) -> list[list[SlurmReplicaRequest]]:
        """Return groups of roles with equal replicas per node, sbatch and srun options."""
        groups: dict[object, list[SlurmReplicaRequest]] = {}
        for role in self.replicas.values():
            key = (
                role.replicas_per_node,
                tuple(role.sbatch_opts.items()),
                tuple(role.srun_opts.items()),
            )
            groups.setdefault(key, []).append(role)
        return list(groups.values())

    @property
    def folder(self) -> str:
        """The directory of records; it differs from that of the logs if the job creates that."""
        job_dir = self.job_dir
        return self.system.host.resolve(fixed_part(job_dir)) if job_dir else ""

    def entry(self, folder: str, jobs: Sequence[Sequence[NativeJob]]) -> SlurmEntry:
        """Return the index entry before the submission, whose id is the mark.

        Args:
            folder: The directory of records.
            jobs: The result of :meth:`jobs`.
        """
        names = {role.name: key for key, role in self.replicas.items()}
        roles = [
            RoleEntry(names[role.name], role.name, role.num_replicas)
            for group in self.groups()
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
        job_dir = self.job_dir
        return self.system.host.resolve(job_dir) if job_dir else folder

    def jobs(self, folder: str) -> list[list[NativeJob]]:
        """Return the job.

        Args:
            folder: The directory of records.
        """
        path = posixpath.join(record_path(folder, self.app_id), script.SCRIPT)
        return [[NativeJob(self.name, [path], folder, self.cmd[1:])]]

    def files(self, record: str) -> Iterator[tuple[str, str]]:
        """Yield the names and contents of the record's files."""
        folder = posixpath.dirname(posixpath.dirname(record))
        request = replace(self, record=record, job_dir=self._logs(folder))
        if request.opts.resume_dir:
            resume_dir = self.system.host.resolve(request.opts.resume_dir)
            request.opts = replace(request.opts, resume_dir=resume_dir)
        yield script.SCRIPT, request.materialize()
        if self.elements:
            yield NAMES, json.dumps([element.name for element in self.elements])
            yield from task_files(
                task_line(replace(element, record=record).commands()) for element in self.elements
            )

    def hidden_variables(self) -> dict[str, None]:
        """Return the variables that sbatch does not get; their values are None.

        The variables of a surrounding Slurm job would change the new job. Outside of a Slurm job,
        such variables are the user's defaults for sbatch.
        """
        system = self.system
        names = system.host.variable_names()
        is_inside = "SLURM_JOB_ID" in names and not self.opts.inherit_env
        hidden = dict.fromkeys(filter(system.is_job_variable, names if is_inside else ()))
        hidden |= hidden_secrets(system.host)
        for role in self.replicas.values():
            hidden |= overridden_variables(role.component_opts(""))
        return hidden

    # Arrays.

    def variations(self) -> object:
        """Return what jobs of one array have in common; None if the job can be in no array.

        Heterogeneous jobs, jobs whose ``job_dir`` contains ``${app_id}``, and jobs with the option
        ``requeue`` cannot.
        """
        if len(self.groups()) != 1 or macros.app_id in (self.job_dir or ""):
            return None
        if attempt_rules(self.opts) is not None:
            return None  # each job has attempts of its own
        replicas = {name: replace(role, args=[], env={}) for name, role in self.replicas.items()}
        return replace(self, replicas=replicas, job_name="", name="", app_id="")

    def environments(self) -> list[Mapping[str, str]]:
        """Return the variables of all roles."""
        jobs = self.elements or [self]
        return [role.env for job in jobs for role in job.replicas.values()]

    def as_array(
        self, elements: Sequence[SlurmBatchRequest], name: str, limit: int | None, previous: str
    ) -> SlurmBatchRequest:
        """Return the request for an array of jobs like this one.

        Args:
            elements: The jobs.
            name: Name of the array.
            limit: How many tasks may run at the same time; None means without a limit.
            previous: Id of an array that must end before this one starts; empty for none.

        Raises:
            CapacityError: The array must be submitted after the end of the earlier array.
        """
        role = next(iter(self.replicas.values()))
        dependency = role.sbatch_opts.get("dependency") or ""
        options = array_options(len(elements), limit, selector(previous), dependency)
        return replace(
            self,
            cmd=[*self.cmd, *options],
            job_name=fit_name(name, BATCH_JOB),
            name=name,
            app_id=new_mark(),
            elements=elements,
        )

    def without_memory(self) -> SlurmBatchRequest:
        """Return the request without a request for memory."""
        roles = {}
        for key, role in self.replicas.items():
            opts = {name: value for name, value in role.sbatch_opts.items() if name != "mem"}
            roles[key] = replace(role, sbatch_opts=opts)
        return replace(self, replicas=roles)

    def is_memory_unmanaged(self) -> bool:
        """Return whether the memory of the nodes was probably not configured."""
        output = self.system.run("sinfo", "-h", "--noconvert", "-o", "%P,%m")
        rows = re.findall(r"(?m)^([^*,]+)(\*?),(\d+)", output)
        default = next((name for name, mark, _ in rows if mark), None)
        partitions = {
            role.sbatch_opts.get("partition") or default for role in self.replicas.values()
        }
        memory = {name: int(size) for name, _, size in rows}
        most = _UNMANAGED_MEMORY_MB
        return all(memory.get(name, most + 1) <= most for name in partitions)

    def __repr__(self) -> str:
        banner = "#----------------\n# SBATCH_SCRIPT\n#----------------"
        script_text = self.materialize(mask=True)
        return masked_text(f"{join(self.cmd)} $SBATCH_SCRIPT\n\n{banner}\n{script_text}")


def image_and_copy(role: Role) -> tuple[str, str]:
    """Return the image of a role, and the directory that gets a copy of the role's workspace.

    The second item is an empty string if the workspace is not copied to a directory.
    """
    planned = planned_build(role)
    if planned is not None:
        return (planned["base"], role.image) if planned["type"] == "dir" else (role.image, "")
    # A tree was built before, such as for all elements of a sweep.
    return ("", role.image) if is_tree(role.image) else (role.image, "")


def new_mark() -> str:
    """Return a new mark of a submission."""
    return random_id(12)


def _gpus(opts: SlurmOpts, count: int) -> dict[str, str | None]:
    total = count * (1 if opts.gpu_option == "gpus-per-task" else opts.replicas_per_node)
    kind = ("gpu" if opts.gpu_option == "gres" else None, opts.gpu_type, str(total))
    return {opts.gpu_option: ":".join(filter(None, kind))}


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
