"""Components for distributed PyTorch, which start torchrun on every node of the job.

::

    torchx run dist.ddp -j 2x4 --script main.py
    torchx run dist.ddp -j 1:4x8 -m trainers.main -- --lr 0.1      # elastic: 1 to 4 nodes
    torchx run dist.spmd -h aws_p4d.24xlarge -j 2 -m trainers.main  # one process per GPU

The image must contain torch and bash. Arguments reach the script unchanged.
"""

# ruff: noqa: N803 - memMB is the documented name
from __future__ import annotations

import os
import re
import warnings

import torchx_specs as specs
from torchx_components.images import IMAGE
from torchx_components.shell_command import Unquoted, shell_command
from torchx_components.structured_arg import (
    StructuredJArgument,
    StructuredNameArgument,
    check_counts,
    main_name,
)
from torchx_specs.errors import ComponentArgumentError
from torchx_specs.model.app import ProgramFile
from torchx_specs.model.templates import macros

_TORCH_DEBUG_FLAGS: dict[str, str] = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}

_J = re.compile(r"(?:(?:(?P<min>[0-9]+):)?(?P<nodes>[0-9]+)x)?(?P<nproc>[0-9]+)")

# Some launchers import these functions by the names that upstream's dist.py has.
_noquote = Unquoted
_args_join = shell_command
get_role_name = main_name


def ddp(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 29500,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
) -> specs.AppDef:
    """Run a script or module with torchrun on every node (distributed data parallel).

    Args:
        script_args: Arguments of the script or module.
        script: Script or binary in the image to run.
        m: Python module to run, instead of a script.
        image: Container image to run in.
        name: Job name as [experiment]/[run]; the run defaults to the name of the script or module.
        h: Named resource of each node; overrides cpu, gpu and memMB.
        cpu: Number of CPUs per node.
        gpu: Number of GPUs per node.
        memMB: Memory per node in MB.
        j: Nodes and processes as [min_nnodes:]nnodesxnproc_per_node, or nproc_per_node alone for
            one node.
        env: Environment variables of the script (e.g. ENV1=v1,ENV2=v2).
        metadata: Metadata to pass to the scheduler (e.g. KEY1=v1,KEY2=v2).
        max_retries: How often the scheduler restarts a failed job.
        rdzv_port: Port of the rendezvous on the host of rank 0; a job of one node uses any free
            port.
        rdzv_backend: Rendezvous backend of torchrun.
        rdzv_conf: Further settings of the rendezvous (e.g. join_timeout=600,timeout=600).
        mounts: Mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly]).
        debug: Set the debug flags of torch.
        tee: Output to show and also write to files: 0 none, 1 stdout, 2 stderr, 3 both.
    """
    resource = specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h)
    nproc_per_node = parse_nnodes(j)[2]
    if nproc_per_node > resource.gpu > 0:
        warnings.warn(
            f"-j {j} starts {nproc_per_node} processes on each node, which has {resource.gpu} GPUs;"
            " some processes share a GPU",
            stacklevel=2,
        )
    return _job(
        script_args,
        script=script,
        m=m,
        image=image,
        name=name,
        resource=resource,
        j=j,
        env=env,
        metadata=metadata,
        max_retries=max_retries,
        mounts=mounts,
        debug=debug,
        rdzv_port=rdzv_port,
        rdzv_backend=rdzv_backend,
        rdzv_conf=rdzv_conf,
        tee=tee,
    )


def torchrun(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 29500,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
) -> specs.AppDef:
    """Run a script or module with torchrun on every node; with ``-h``, ``-j 2`` means two nodes.

    Args:
        script_args: Arguments of the script or module.
        script: Script or binary in the image to run.
        m: Python module to run, instead of a script.
        image: Container image to run in.
        name: Job name as [experiment]/[run]; the run defaults to the name of the script or module.
        h: Named resource of each node; overrides cpu, gpu and memMB.
        cpu: Number of CPUs per node.
        gpu: Number of GPUs per node.
        memMB: Memory per node in MB.
        j: Nodes and processes as [min_nnodes:]nnodesxnproc_per_node. With h, nproc_per_node may be
            left out and defaults to the number of GPUs. Without h, a single number is
            nproc_per_node on one node.
        env: Environment variables of the script (e.g. ENV1=v1,ENV2=v2).
        metadata: Metadata to pass to the scheduler (e.g. KEY1=v1,KEY2=v2).
        max_retries: How often the scheduler restarts a failed job.
        rdzv_port: Port of the rendezvous on the host of rank 0; a job of one node uses any free
            port.
        rdzv_backend: Rendezvous backend of torchrun.
        rdzv_conf: Further settings of the rendezvous (e.g. join_timeout=600,timeout=600).
        mounts: Mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly]).
        debug: Set the debug flags of torch.
        tee: Output to show and also write to files: 0 none, 1 stdout, 2 stderr, 3 both.
    """
    if h and "x" not in j:
        j = str(StructuredJArgument.parse_from(h, j))
    return ddp(
        *script_args,
        script=script,
        m=m,
        image=image,
        name=name,
        h=h,
        cpu=cpu,
        gpu=gpu,
        memMB=memMB,
        j=j,
        env=env,
        metadata=metadata,
        max_retries=max_retries,
        rdzv_port=rdzv_port,
        rdzv_backend=rdzv_backend,
        rdzv_conf=rdzv_conf,
        mounts=mounts,
        debug=debug,
        tee=tee,
    )


def spmd(
    *args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = IMAGE,
    name: str = "/",
    h: str = "gpu.small",
    j: str = "1x1",
    env: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    debug: bool = False,
) -> specs.AppDef:
    """Run a script or module with torchrun on nodes of a named resource.

    The default ``-j 1x1`` starts one process. ``-j 2`` starts one process per GPU on two nodes.

    Args:
        args: Arguments of the script or module.
        script: Script or binary in the image to run.
        m: Python module to run, instead of a script.
        image: Container image to run in.
        name: Job name as [experiment]/[run]; the run defaults to the name of the script or module.
        h: Named resource of each node.
        j: Nodes and processes as [min_nnodes:]nnodes[xnproc_per_node]. Without xnproc_per_node,
            each node has one process per GPU of h.
        env: Environment variables of the script (e.g. ENV1=v1,ENV2=v2).
        metadata: Metadata to pass to the scheduler (e.g. KEY1=v1,KEY2=v2).
        max_retries: How often the scheduler restarts a failed job.
        mounts: Mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly]).
        debug: Set the debug flags of torch.
    """
    return _job(
        args,
        script=script,
        m=m,
        image=image,
        name=name,
        resource=specs.resource(h=h),
        j=str(StructuredJArgument.parse_from(h, j)),
        env=env,
        metadata=metadata,
        max_retries=max_retries,
        mounts=mounts,
        debug=debug,
    )


def parse_nnodes(j: str) -> tuple[int, int, int, str]:
    """Parse ``[min_nnodes:]nnodesxnproc_per_node``, or ``nproc_per_node`` alone for one node.

    >>> parse_nnodes("1:2x4"), parse_nnodes("2x4"), parse_nnodes("4")
    ((1, 2, 4, '1:2'), (2, 2, 4, '2'), (1, 1, 4, '1'))

    Returns:
        The smallest and largest number of nodes, the number of processes per node, and the value of
        torchrun's ``--nnodes``.

    Raises:
        ComponentArgumentError: ``j`` is malformed, a number is 0, or the smallest number of nodes
            exceeds the largest.
    """
    parsed = _J.fullmatch(j)
    if not parsed:
        raise ComponentArgumentError(
            f"Invalid format for -j, usage example: 1:2x4 or 1x4 or 4. Given: {j}", parameter="j"
        )
    max_nnodes = int(parsed["nodes"] or 1)
    min_nnodes = int(parsed["min"] or max_nnodes)
    nproc_per_node = int(parsed["nproc"])
    check_counts(j, min_nnodes, max_nnodes, nproc_per_node)
    nnodes = f"{min_nnodes}:{max_nnodes}" if parsed["min"] else str(max_nnodes)
    return min_nnodes, max_nnodes, nproc_per_node, nnodes


def _job(
    script_args: tuple[str, ...],
    *,
    script: str | None,
    m: str | None,
    image: str,
    name: str,
    resource: specs.Resource,
    j: str,
    env: dict[str, str] | None,
    metadata: dict[str, str] | None,
    max_retries: int,
    mounts: list[str] | None,
    debug: bool,
    rdzv_port: int = 29500,
    rdzv_backend: str = "c10d",
    rdzv_conf: str | None = None,
    tee: int = 3,
) -> specs.AppDef:
    if (script is None) == (m is None):
        raise ComponentArgumentError("exactly one of --script and -m must be specified")
    min_nnodes, max_nnodes, nproc_per_node, nnodes = parse_nnodes(j)
    _check_range("rdzv_port", rdzv_port, 1, 65535)
    _check_range("tee", tee, 0, 3)
    structured_name = StructuredNameArgument.parse_from(name, m, script)

    if max_nnodes == 1:
        endpoint: str = (
            "localhost:0"  # port 0 means any free port, so that several jobs can run on one host
        )
    else:
        # The scheduler replaces the macro by the name of an environment variable, and the job's
        # shell reads the host of rank 0 from it. Rank 0 itself uses localhost: torchrun starts the
        # rendezvous only if it recognizes the host as its own, and it does not recognize an address
        # of a machine whose name resolves to a loopback address, as on Debian. Some schedulers do
        # not set the variable on the node of rank 0.
        host = f"$${{{macros.rank0_env}:=localhost}}"
        if rdzv_backend == "c10d":
            host = f"$$([ {macros.replica_id} = 0 ] && echo localhost || echo {host})"
        endpoint = Unquoted(f"{host}:{rdzv_port}")

    command = ["torchrun", "--rdzv_backend", rdzv_backend]
    if rdzv_conf:
        command += ["--rdzv_conf", rdzv_conf]
    command += ["--rdzv_endpoint", endpoint]
    command += ["--rdzv_id", macros.app_id]
    command += ["--nnodes", nnodes]
    command += ["--nproc_per_node", str(nproc_per_node)]
    command += ["--tee", str(tee)]
    command += ["--role", ""]
    if rdzv_backend == "static":
        command += ["--node_rank", macros.replica_id]
    command += [script] if script is not None else ["-m", str(m)]
    command += script_args

    app = specs.AppDef(
        name=structured_name.run_name,
        roles=[
            specs.Role(
                name=get_role_name(script, m),
                image=image,
                min_replicas=min_nnodes,
                entrypoint="bash",
                args=["-c", shell_command(command)],
                env=_environment(env, structured_name, debug),
                num_replicas=max_nnodes,
                max_retries=max_retries,
                resource=resource,
                port_map={"c10d": rdzv_port},
                mounts=specs.parse_mounts(mounts) if mounts else [],
            )
        ],
        metadata=dict(metadata or {}),
    )
    program = ProgramFile("module", str(m)) if script is None else ProgramFile("script", script)
    program.record(app.roles[0])
    return app


def _environment(
    env: dict[str, str] | None, name: StructuredNameArgument, debug: bool
) -> dict[str, str]:
    result = dict(env or {})
    result["TORCHX_TRACKING_EXPERIMENT_NAME"] = name.experiment_name
    result["TORCHX_TRACKING_RUN_NAME"] = name.run_name
    result.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "WARNING"))
    if debug:
        result.update(_TORCH_DEBUG_FLAGS)
    return result


def _check_range(parameter: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ComponentArgumentError(
            f"--{parameter} must be from {lowest} to {highest}, got {value}", parameter=parameter
        )
