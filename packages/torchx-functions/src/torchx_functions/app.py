"""The app of a function call: its parameters, its program, and the mount of the folder."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from torchx_functions.host_folder import MODULES
from torchx_kit.scripts.python_program import python_program
from torchx_runner.installed_schedulers import split_host
from torchx_specs.errors import RequestError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource

if TYPE_CHECKING:
    from torchx_functions.folders import PrivateFolder

#: The program of a job.
PROGRAM = python_program("torchx_functions.run")
#: The program of a job on another machine, which may have none of the modules.
PROGRAM_ON_HOST = (
    "import os, sys; sys.version_info >= (3, 10) or sys.exit('torchx_functions: %s is older than"
    " Python 3.10; set python= to a newer one of the cluster' % sys.executable);"
    f" sys.path.append(os.path.dirname(sys.argv[1]) + '/{MODULES}'); {PROGRAM}"
)
#: The name of the app's role.
ROLE = "function"
#: The largest number of characters of a job's name.
LONGEST_NAME = 24
# Jobs of these schedulers are processes on this machine: an image is a folder, not a container.
_ON_THIS_MACHINE = frozenset({"local_cwd"})
# These schedulers can mount a folder of the host in a container. The host is this machine, or a
# machine of a cluster that shares its folders with this machine.
_MOUNT_HOST_FOLDERS = frozenset({"local_docker", "slurm", "lsf", "sge"})


@dataclass
class JobParameters:
    """The parameters of jobs that run a function.

    Args:
        name: The job's name; empty means the name of the function.
        cpus: Number of CPUs, a fraction where the scheduler has fractions.
        gpus: Number of GPUs.
        mem_mb: Memory in MB.
        image: The container image; empty means no container. The image must contain Python,
            torchx-functions (unless the scheduler uses another machine) and the modules that the
            function imports. For ``local_cwd``, the image
            is a folder.
        env: Environment variables.
        mounts: Mounts of the container.
        python: The Python program of the job. The default is this process's program, ``python`` in
            a container, and ``python3`` on another machine.
        retries: How many times a failed job is run again.
        max_parallel: How many jobs of one ``map`` may run at the same time; None means 100.
    """

    name: str = ""
    cpus: float = 1
    gpus: int = 0
    mem_mb: int = 1024
    image: str = ""
    env: dict[str, str] = field(default_factory=dict)
    mounts: list[BindMount | VolumeMount | DeviceMount] = field(default_factory=list)
    python: str = ""
    retries: int = 0
    max_parallel: int | None = None


def job_name(text: str) -> str:
    """Return a job's name that every scheduler accepts: lower-case letters, digits and ``-``."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_NAME].strip("-")
    return name if name[:1].isalpha() else f"fn-{name}".strip("-")


def make_app(
    name: str,
    scheduler: str,
    parameters: JobParameters,
    root: str,
    folder: str,
    host_user: int | None = None,
) -> AppDef:
    """Return the app that runs one function call.

    Args:
        name: The app's name.
        scheduler: Name of the scheduler.
        parameters: Resources, container and retries of the job.
        root: The folder of all jobs, which a container must mount.
        folder: The folder of the call.
        host_user: If the folders are on another machine, the id of their owner.

    Raises:
        RequestError: Containers of the scheduler cannot read ``root``.
    """
    scheduler = split_host(scheduler)[0]
    is_local = host_user is None
    in_container = bool(parameters.image) and scheduler not in _ON_THIS_MACHINE
    python = "python" if in_container else (is_local and sys.executable) or "python3"
    mounts = list(parameters.mounts)
    if in_container and not any(_contains(mount, root) for mount in mounts):
        if scheduler not in _MOUNT_HOST_FOLDERS:
            raise RequestError(
                f"containers of scheduler '{scheduler}' cannot read {root}, the folder of the"
                " function and its result: give folder= on a shared file system, and mount this"
                " file system at the same path with mounts=[VolumeMount(CLAIM, PATH)]"
            )
        mounts.append(BindMount(root, root))
    role = Role(
        ROLE,
        image=parameters.image,
        entrypoint=parameters.python or python,
        args=[
            "-c",
            PROGRAM if is_local else PROGRAM_ON_HOST,
            folder,
            str(os.geteuid() if host_user is None else host_user),
        ],
        env=dict(parameters.env),
        # Kubernetes has fractions of a CPU.
        resource=Resource(
            cpu=cast("int", parameters.cpus), gpu=parameters.gpus, memMB=parameters.mem_mb
        ),
        mounts=mounts,
        max_retries=parameters.retries,
    )
    return AppDef(name, roles=[role])


def _contains(mount: BindMount | VolumeMount | DeviceMount, folder: str) -> bool:
    if isinstance(mount, DeviceMount) or mount.read_only or not os.path.isabs(mount.dst_path):
        return False
    destination = os.path.normpath(mount.dst_path)
    return os.path.commonpath([destination, folder]) == destination


def write_app(group: PrivateFolder, app: AppDef) -> None:
    """Write the app of a group, which the component :func:`call` reads for each job."""
    group.write("app.json", serialize.to_json(app).encode())


def call(folder: str) -> AppDef:
    """Call a function that ``torchx_functions.map`` has pickled.

    Args:
        folder: The folder of the call on this machine.
    """
    from torchx_functions.folders import open_group

    with open_group(os.path.dirname(folder)) as group:
        app = serialize.from_json(group.read("app.json").decode())
    arguments = app.roles[0].args
    arguments[2] = os.path.join(os.path.dirname(arguments[2]), os.path.basename(folder))
    return app
