"""The request for an app, whose roles may run in Docker."""

from __future__ import annotations

from torchx_kit.batch.request import BatchRequest
from torchx_kit.errors import MountTypeError
from torchx_kit.jobs.attempts import ATTEMPT_VARIABLES, TORCHRUN_VARIABLES, attempt_rules
from torchx_kit.scripts.containers import runs_on_host
from torchx_kit.scripts.job_script import RoleQuoting, env_command
from torchx_kit.scripts.shell import quote_ascii
from torchx_sched_lsf.options import LsfOpts
from torchx_specs.model.app import Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.settings import ENV_TORCHX_REPLICA_ID


class LsfRequest(BatchRequest):
    """The request for an app; see :class:`~torchx_kit.batch.request.BatchRequest`."""

    def container(self, role: Role) -> str:
        """Return the container runtime of a role; ``none`` without a container."""
        return self.cfg.container or ("none" if runs_on_host(role.image) else "docker")

    def command_words(
        self,
        role: Role,
        kind: str,
        quoting: RoleQuoting,
        env_args: list[str],
        program: list[str],
    ) -> list[str]:
        """Return the command that runs a role's program; see the base class."""
        if kind != "docker":
            return super().command_words(role, kind, quoting, env_args, program)
        words = [*env_command(env_args, "docker"), "docker", "run"]
        words += [f'--name={self.app_id}-{self.role_names[role.name]}-"$1"']
        words += map(quote_ascii, docker_options(role, self.cfg))
        # docker reads the variables from its own environment, so they are on no command line
        attempt = (*ATTEMPT_VARIABLES, *TORCHRUN_VARIABLES) if attempt_rules(self.cfg) else ()
        for key in (ENV_RANK0_HOST, ENV_TORCHX_REPLICA_ID, *attempt, *role.env):
            words += ["-e", quote_ascii(key)]
        return [*words, "--entrypoint", program[0], "--rm", quote_ascii(role.image), *program[1:]]


def docker_options(role: Role, cfg: LsfOpts) -> list[str]:
    """Return the options of ``docker run``, except for name, role variables and entry point.

    Raises:
        MountTypeError: A mount of the role has an unknown type.
    """
    options = []
    for mount in role.mounts:
        if isinstance(mount, BindMount):
            mode = "ro" if mount.read_only else "rw"
            options += ["-v", f"{mount.src_path}:{mount.dst_path}:{mode}"]
        elif isinstance(mount, VolumeMount):
            text = f"type=volume,src={mount.src},dst={mount.dst_path}"
            options += ["--mount", text + (",readonly" if mount.read_only else "")]
        elif isinstance(mount, DeviceMount):
            options.append(f"--device={mount.src_path}:{mount.dst_path}:{mount.permissions}")
        else:
            raise MountTypeError(f"{mount!r} is not a BindMount, VolumeMount or DeviceMount")
    if cfg.container_workdir:
        options += ["-w", cfg.container_workdir]
    if cfg.host_network:
        options += ["--net=host", "--ipc=host"]
    else:
        for port in role.port_map.values():
            options += ["-p", str(port)]
    options += ["--shm-size", cfg.shm_size]
    resource = role.resource
    if resource.cpu > 0:
        options.append(f"--cpus={resource.cpu}")
    if resource.memMB > 0:
        options.append(f"--memory={resource.memMB * 1024 * 1024}")
    if resource.gpu > 0:
        # LSF sets this variable to the job's GPUs
        options += ["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES"]
    return options
