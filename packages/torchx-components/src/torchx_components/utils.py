"""Components for everyday jobs: a command, a script, a copy.

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
from torchx_components.app_programs import module_of
from torchx_components.shell_words import joined
from torchx_specs.errors import ComponentArgumentError
from torchx_specs.images import IMAGE


def echo(msg: str = "hello world", image: str = IMAGE, num_replicas: int = 1) -> specs.AppDef:
    """Prints a message.

    Args:
        msg: message to print
        image: image to use
        num_replicas: number of replicas to run
    """
    return _job("echo", image, "echo", [msg], num_replicas=num_replicas)


def touch(file: str, image: str = IMAGE) -> specs.AppDef:
    """Makes an empty file, or sets the time of one that exists.

    Args:
        file: file to make
        image: image to use
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
    """Runs a command in a shell; what is special to a shell reaches the command as it is.

    ``torchx run utils.sh -- sh -c 'echo $HOME | wc -c'`` has the job's shell interpret a line.

    Args:
        args: the command and its arguments
        image: image to use
        num_replicas: number of replicas to run
        cpu: number of cpus per replica
        gpu: number of gpus per replica
        memMB: memory in MB per replica
        h: a registered named resource (if specified takes precedence over cpu, gpu, memMB)
        env: environment variables for the command (e.g. ENV1=v1,ENV2=v2)
        max_retries: how often the scheduler starts the job again
        mounts: mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly])
        entrypoint: a program to run with the arguments instead, without a shell
    """
    environment = dict(env or {})
    environment.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "WARNING"))
    return _job(
        "sh",
        image,
        entrypoint or "sh",
        list(args) if entrypoint else ["-c", joined(args)],
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
    """Runs a module, a script or a line of Python.

    Args:
        args: arguments of the program, its ``sys.argv[1:]``
        m: run library module as a script
        c: program passed in as a string
        script: the .py script to run
        image: image to use
        name: name of the job
        cpu: number of cpus per replica
        gpu: number of gpus per replica
        memMB: memory in MB per replica
        h: a registered named resource (if specified takes precedence over cpu, gpu, memMB)
        num_replicas: number of replicas to run
        mounts: mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly])
        env: environment variables for the program (e.g. ENV1=v1,ENV2=v2)
        max_retries: how often the scheduler starts the job again
    """
    if sum(given is not None for given in (m, c, script)) != 1:
        raise ComponentArgumentError(
            "exactly one of `-m`, `-c` and `--script` needs to be specified"
        )
    environment = dict(env or {})
    if m is not None:
        program = ["-m", m]
        # Hydra looks for its configuration beside the main module, and with -m cannot tell it.
        environment.setdefault("HYDRA_MAIN_MODULE", m)
    elif c is not None:
        program = ["-c", c]
    else:
        program = [str(script)]
    return _job(
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
    """Runs a program that is there already, without an image.

    Args:
        args: arguments of the program
        entrypoint: the program
        name: name of the job
        num_replicas: number of replicas to run
        cpu: number of cpus per replica
        gpu: number of gpus per replica
        memMB: memory in MB per replica
        h: a registered named resource (if specified takes precedence over cpu, gpu, memMB)
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
    """Copies a file or a folder between fsspec locations.

    Args:
        src: the source, an fsspec location (e.g. s3://bucket/data)
        dst: the destination, an fsspec location; folders above it are made
        image: image to use
        mounts: mounts (e.g. type=<bind/volume>,src=/host,dst=/job[,readonly])
    """
    program = ["-m", module_of("copy"), "--src", src, "--dst", dst]
    return _job("torchx-utils-copy", image, "python", program, mounts=mounts)


def booth(
    x1: float,
    x2: float,
    trial_idx: int = 0,
    tracker_base: str = "/tmp/torchx-util-booth",  # noqa: S108 - the default of older releases
    image: str = IMAGE,
) -> specs.AppDef:
    """Evaluates the Booth function, ``(x1 + 2*x2 - 7)^2 + (2*x1 + x2 - 5)^2``.

    The value is stored by :class:`torchx_apps.results.FsspecResultTracker` under the key
    ``trial_idx`` as ``{"booth_eval": value}``.

    Args:
        x1: first coordinate
        x2: second coordinate
        trial_idx: key of the result
        tracker_base: fsspec location to store the result under
        image: image to use
    """
    program = ["-m", module_of("booth")]
    program += ["--x1", str(x1), "--x2", str(x2)]
    program += ["--trial_idx", str(trial_idx), "--tracker_base", tracker_base]
    return _job("torchx-utils-booth", image, "python", program)


def hydra(
    *overrides: str,
    config_name: Annotated[str, "-cn"],
    config_dir: Annotated[str, "-cd"] = ".torchx",
) -> specs.AppDef:
    """Runs the job that a Hydra configuration describes under its key ``app``.

    Macros are written as ``${torchx.app_id}``, ``${torchx.replica_id}``, ``${torchx.rank0_env}``
    and ``${torchx.img_root}``. Set TORCHX_DEBUG to see the composed configuration.

    Args:
        overrides: Hydra overrides (e.g. app.name=other +lr=0.1)
        config_name: name of the configuration, without .yaml
        config_dir: folder of the configuration
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
    """A job of one role, by default small."""
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
