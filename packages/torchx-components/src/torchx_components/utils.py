"""Components for common jobs: a command, a script, a copy.

::

    torchx run utils.echo --msg "hello"
    torchx run utils.sh -- ls -l "a folder"
    torchx run utils.python -m trainers.main -- --lr 0.1
    torchx run utils.copy --src s3://bucket/data --dst /tmp/data
"""

# ruff: noqa: N803 - memMB is the documented name
from __future__ import annotations

import os
from typing import Annotated

import torchx_specs as specs
from torchx_components.app_programs import program_module
from torchx_components.images import IMAGE
from torchx_components.shell_command import program_command
from torchx_specs.errors import ComponentArgumentError
from torchx_specs.model.app import ProgramFile


def echo(msg: str = "hello world", image: str = IMAGE, num_replicas: int = 1) -> specs.AppDef:
    """Print a message.

    Args:
        msg: Message to print.
        image: Container image to run in.
        num_replicas: Number of replicas.
    """
    return _job("echo", image, "echo", [msg], num_replicas=num_replicas)


def touch(file: str, image: str = IMAGE) -> specs.AppDef:
    """Create an empty file, or update the modification time of an existing one.

    Args:
        file: Path of the file.
        image: Container image to run in.
    """
    return _job("touch", image, "touch", [file])


def sh(
    *args: str,
    image: str = IMAGE,
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    entrypoint: str | None = None,
) -> specs.AppDef:
    """Run a command in a shell, which passes the arguments to the command unchanged.

    To have the shell interpret a line: ``torchx run utils.sh -- sh -c 'echo $HOME | wc -c'``.

    Args:
        args: The command and its arguments.
        image: Container image to run in.
        num_replicas: Number of replicas.
        cpu: Number of CPUs per replica.
        gpu: Number of GPUs per replica.
        memMB: Memory per replica in MB.
        h: Named resource of each replica; overrides cpu, gpu and memMB.
        env: Environment variables of the command (e.g. ENV1=v1,ENV2=v2).
        max_retries: How often the scheduler restarts a failed job.
        mounts: Mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly]).
        entrypoint: Program to run with the arguments, instead of a shell.
    """
    environment = dict(env or {})
    environment.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "WARNING"))
    return _job(
        "sh",
        image,
        entrypoint or "sh",
        list(args) if entrypoint else ["-c", program_command(args)],
        num_replicas=num_replicas,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        env=environment,
        max_retries=max_retries,
        mounts=mounts,
    )


def python(
    *args: str,
    m: str | None = None,
    c: str | None = None,
    script: str | None = None,
    image: str = IMAGE,
    name: str = "torchx_utils_python",
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
    num_replicas: int = 1,
    mounts: list[str] | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
) -> specs.AppDef:
    """Run a Python module, script or command.

    Args:
        args: Arguments of the program (``sys.argv[1:]``).
        m: Module to run.
        c: Python code to run.
        script: Path of the script to run.
        image: Container image to run in.
        name: Name of the job.
        cpu: Number of CPUs per replica.
        gpu: Number of GPUs per replica.
        memMB: Memory per replica in MB.
        h: Named resource of each replica; overrides cpu, gpu and memMB.
        num_replicas: Number of replicas.
        mounts: Mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly]).
        env: Environment variables of the program (e.g. ENV1=v1,ENV2=v2).
        max_retries: How often the scheduler restarts a failed job.
    """
    if sum(given is not None for given in (m, c, script)) != 1:
        raise ComponentArgumentError("exactly one of `-m`, `-c` and `--script` must be specified")
    environment = dict(env or {})
    if m is not None:
        program = ["-m", m]
        # Hydra reads the configuration next to the main module. With `python -m`, Hydra finds this
        # module only by this variable.
        environment.setdefault("HYDRA_MAIN_MODULE", m)
    elif c is not None:
        program = ["-c", c]
    else:
        program = [str(script)]
    app = _job(
        name,
        image,
        "python",
        [*program, *args],
        role="python",
        num_replicas=num_replicas,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        env=environment,
        max_retries=max_retries,
        mounts=mounts,
    )
    if c is None:
        file = ProgramFile("module", m) if m is not None else ProgramFile("script", str(script))
        file.record(app.roles[0])
    return app


def binary(
    *args: str,
    entrypoint: str,
    name: str = "torchx_utils_binary",
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,
    h: str | None = None,
) -> specs.AppDef:
    """Run an installed program without an image.

    Args:
        args: Arguments of the program.
        entrypoint: The program.
        name: Name of the job.
        num_replicas: Number of replicas.
        cpu: Number of CPUs per replica.
        gpu: Number of GPUs per replica.
        memMB: Memory per replica in MB.
        h: Named resource of each replica; overrides cpu, gpu and memMB.
    """
    return _job(
        name,
        specs.NONE,
        entrypoint,
        list(args),
        role="binary",
        num_replicas=num_replicas,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
    )


def copy(src: str, dst: str, image: str = IMAGE, mounts: list[str] | None = None) -> specs.AppDef:
    """Copy a file or directory between fsspec URLs.

    Args:
        src: fsspec URL of the source (e.g. s3://bucket/data).
        dst: fsspec URL of the destination; missing parent directories are created.
        image: Container image to run in.
        mounts: Mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly]).
    """
    program = ["-m", program_module("copy"), "--src", src, "--dst", dst]
    return _job("torchx-utils-copy", image, "python", program, mounts=mounts)


def booth(
    x1: float,
    x2: float,
    trial_idx: int = 0,
    tracker_base: str = "/tmp/torchx-util-booth",  # noqa: S108 - the default of older releases
    image: str = IMAGE,
) -> specs.AppDef:
    """Evaluate the Booth function, ``(x1 + 2*x2 - 7)^2 + (2*x1 + x2 - 5)^2``.

    :class:`torchx_apps.results.FsspecResultTracker` stores the value under the key ``trial_idx`` as
    ``{"booth_eval": value}``.

    Args:
        x1: First coordinate.
        x2: Second coordinate.
        trial_idx: Key of the result.
        tracker_base: fsspec URL of the directory for results.
        image: Container image to run in.
    """
    program = ["-m", program_module("booth")]
    program += ["--x1", str(x1), "--x2", str(x2)]
    program += ["--trial_idx", str(trial_idx), "--tracker_base", tracker_base]
    return _job("torchx-utils-booth", image, "python", program)


def hydra(
    *overrides: str,
    config_name: Annotated[str, "-cn"],
    config_dir: Annotated[str, "-cd"] = ".torchx",
) -> specs.AppDef:
    """Run the job that a Hydra configuration describes under its key ``app``.

    Write macros as ``${torchx.app_id}``, ``${torchx.replica_id}``, ``${torchx.rank0_env}`` and
    ``${torchx.img_root}``. Set TORCHX_DEBUG=1 to print the composed configuration.

    Args:
        overrides: Hydra overrides (e.g. app.name=other +lr=0.1).
        config_name: Name of the configuration, without .yaml.
        config_dir: Directory of the configuration.
    """
    from torchx_components.hydra_config import _app_from_config

    return _app_from_config(config_dir, config_name, list(overrides))


def _job(
    name: str,
    image: str,
    entrypoint: str,
    args: list[str],
    *,
    role: str | None = None,
    num_replicas: int = 1,
    resource: specs.Resource | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
) -> specs.AppDef:
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name=role or name,
                image=image,
                entrypoint=entrypoint,
                args=args,
                num_replicas=num_replicas,
                resource=resource or specs.Resource(cpu=1, gpu=0, memMB=1024),
                env=env or {},
                max_retries=max_retries,
                mounts=specs.parse_mounts(mounts) if mounts else [],
            )
        ],
    )
