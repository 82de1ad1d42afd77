"""Components for distributed PyTorch: they start torchrun on every node of the job.

::

    torchx run dist.ddp -j 2x4 --script main.py
    torchx run dist.ddp -j 1:4x8 -m trainers.main -- --lr 0.1      # elastic: 1 to 4 nodes
    torchx run dist.spmd -h aws_p4d.24xlarge -j 2 -m trainers.main  # a process for each GPU

The image needs torch and bash. Every argument for the script reaches it as it is.
"""

# ruff: noqa: N803 - memMB is the documented name
from __future__ import annotations

import os
import re
import warnings

import torchx_specs as specs
from torchx_components.shell_words import Unquoted, joined
from torchx_components.structured_arg import (
    StructuredJArgument,
    StructuredNameArgument,
    check_counts,
    main_name,
)
from torchx_specs.errors import ComponentArgumentError
from torchx_specs.images import IMAGE
from torchx_specs.model.templates import macros

_TORCH_DEBUG_FLAGS: dict[str, str] = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}

_J = re.compile(r"(?:(?:(?P<min>[0-9]+):)?(?P<nodes>[0-9]+)x)?(?P<nproc>[0-9]+)")

# The names that in-house launchers import.
_noquote = Unquoted
_args_join = joined
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
    """Runs a script or module on every node with torchrun (distributed data parallel).

    Args:
        script_args: arguments of the script or module
        script: script or binary to run within the image
        m: the python module to run, instead of a script
        image: image (e.g. docker)
        name: job name as [experiment]/[run]; a missing run is named after the script or module
        h: a registered named resource (if specified takes precedence over cpu, gpu, memMB)
        cpu: number of cpus per node
        gpu: number of gpus per node
        memMB: memory in MB per node
        j: [min_nnodes:]nnodesxnproc_per_node, or nproc_per_node alone for one node
        env: environment variables for the script (e.g. ENV1=v1,ENV2=v2)
        metadata: metadata for the scheduler (e.g. KEY1=v1,KEY2=v2)
        max_retries: how often the scheduler starts the job again
        rdzv_port: port of the rendezvous on the host of rank 0; one node takes any free port
        rdzv_backend: rendezvous backend of torchrun
        rdzv_conf: more configuration of the rendezvous (e.g. join_timeout=600,timeout=600)
        mounts: mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly])
        debug: whether to set torch's debugging flags
        tee: what to show and also write to files: 0 nothing, 1 stdout, 2 stderr, 3 both
    """
    resource = specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h)
    nproc_per_node = parse_nnodes(j)[2]
    if nproc_per_node > resource.gpu > 0:
        warnings.warn(
            f"-j {j} starts {nproc_per_node} processes on a node with {resource.gpu} GPUs,"
            " so that some have to share one",
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
    """Runs a script or module on every node with torchrun; with ``-h``, ``-j 2`` means 2 nodes.

    Args:
        script_args: arguments of the script or module
        script: script or binary to run within the image
        m: the python module to run, instead of a script
        image: image (e.g. docker)
        name: job name as [experiment]/[run]; a missing run is named after the script or module
        h: a registered named resource (if specified takes precedence over cpu, gpu, memMB)
        cpu: number of cpus per node
        gpu: number of gpus per node
        memMB: memory in MB per node
        j: [min_nnodes:]nnodesxnproc_per_node; without nproc_per_node a process for each GPU of h,
            and without h one number means processes on one node
        env: environment variables for the script (e.g. ENV1=v1,ENV2=v2)
        metadata: metadata for the scheduler (e.g. KEY1=v1,KEY2=v2)
        max_retries: how often the scheduler starts the job again
        rdzv_port: port of the rendezvous on the host of rank 0; one node takes any free port
        rdzv_backend: rendezvous backend of torchrun
        rdzv_conf: more configuration of the rendezvous (e.g. join_timeout=600,timeout=600)
        mounts: mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly])
        debug: whether to set torch's debugging flags
        tee: what to show and also write to files: 0 nothing, 1 stdout, 2 stderr, 3 both
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
    """Runs a script or module on every node of a named resource, by default a process for each GPU.

    Args:
        args: arguments of the script or module
        script: script or binary to run within the image
        m: the python module to run, instead of a script
        image: image (e.g. docker)
        name: job name as [experiment]/[run]; a missing run is named after the script or module
        h: a registered named resource, the type of host
        j: [min_nnodes:]nnodes[xnproc_per_node]; without nproc_per_node a process for each GPU
        env: environment variables for the script (e.g. ENV1=v1,ENV2=v2)
        metadata: metadata for the scheduler (e.g. KEY1=v1,KEY2=v2)
        max_retries: how often the scheduler starts the job again
        mounts: mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly])
        debug: whether to set torch's debugging flags
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
    """Reads ``[min_nnodes:]nnodesxnproc_per_node``, or ``nproc_per_node`` alone for one node.

    >>> parse_nnodes("1:2x4"), parse_nnodes("2x4"), parse_nnodes("4")
    ((1, 2, 4, '1:2'), (2, 2, 4, '2'), (1, 1, 4, '1'))

    Returns:
        The minimum and maximum of nodes, processes on each node, and torchrun's ``--nnodes``.

    Raises:
        ComponentArgumentError: ``j`` is malformed, a count is 0, or the minimum exceeds the
            maximum (also a ValueError).
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
        endpoint: str = "localhost:0"  # port 0: any free one, so that jobs can share a host
    else:
        # The shell of the job looks the host up, in the variable that the scheduler names. On the
        # node of rank 0 some schedulers leave it unset.
        endpoint = Unquoted(f"$${{{macros.rank0_env}:=localhost}}:{rdzv_port}")

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

    return specs.AppDef(
        name=structured_name.run_name,
        roles=[
            specs.Role(
                name=get_role_name(script, m),
                image=image,
                min_replicas=min_nnodes,
                entrypoint="bash",
                args=["-c", joined(command)],
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
