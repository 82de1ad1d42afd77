"""Builds the request for an app, without writing a file or starting a process."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from torchx_kit.jobs.attempts import attempt_rules
from torchx_kit.names.limits import FILE, fit_names
from torchx_kit.role_templates import RoleTemplate
from torchx_kit.scripts.setup_script import setup_command
from torchx_kit.times import limit_option
from torchx_sched_local.image_providers import ImageProvider
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, ReplicaParam
from torchx_sched_local.store.layout import COMBINED_LOG, ERROR_FILE, STDERR_LOG, STDOUT_LOG
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.settings import ENV_TORCHX_RESUME_DIR
from torchx_specs.workspace.spec import Workspace

#: The variable that names the folder for the logs of torchelastic.
ENV_PET_LOG_DIR = "PET_LOG_DIR"


def build_request(
    app: AppDef,
    app_id: str,
    log_dir: str,
    provider: ImageProvider,
    search_path: Callable[[str | None, str | None], str],
    copies: Mapping[Workspace, str],
    index: int | None = None,
) -> PopenRequest:
    """Return the request for an app.

    Args:
        app: The app, which is not changed.
        app_id: The app's id.
        log_dir: The app's folder.
        provider: Resolves images.
        search_path: Called with the PATH in ``Role.env`` and the working directory of the replicas;
            returns the PATH of the replicas.
        copies: The folder of the copy of each workspace that is copied.
        index: If the app is an element of an array, its index; ``log_dir`` is the array's folder.
    """
    # Calling the provider for each replica is slower.
    has_own_way = type(provider).get_replica_param is not ImageProvider.get_replica_param
    folders = fit_names((role.name for role in app.roles), FILE)
    role_params: dict[str, list[ReplicaParam]] = {}
    role_log_dirs: dict[str, list[str]] = {}
    for original in app.roles:
        role = _copy(original)
        copy_folder = copies.get(role.workspace) if role.workspace else None
        img_root = provider.fetch_role(role)
        values = macros.Values(copy_folder or img_root, app_id, "0", ENV_RANK0_HOST)
        template = RoleTemplate(role)
        folder = os.path.join(log_dir, folders[role.name])
        pet_log_dir = os.path.join(log_dir, "torchelastic", folders[role.name])
        if index is not None:
            pet_log_dir = f"{pet_log_dir}/{index}"
        cwd = copy_folder or provider.get_cwd(role.image)
        program = provider.get_entrypoint(values.img_root, role)
        search_paths: dict[str | None, str] = {}
        params: list[ReplicaParam] = []
        log_dirs: list[str] = []
        for k in range(role.num_replicas):
            values.replica_id = str(k)
            replica_folder = f"{folder}/{k if index is None else index}"
            env = template.env(values)
            path = env.get("PATH")
            if path not in search_paths:
                search_paths[path] = search_path(path, cwd)
            env["PATH"] = search_paths[path]
            env[ENV_RANK0_HOST] = "localhost"
            env.setdefault(ENV_ERROR_FILE, f"{replica_folder}/{ERROR_FILE}")
            env.setdefault(ENV_PET_LOG_DIR, pet_log_dir)
            logs = (
                f"{replica_folder}/{STDOUT_LOG}",
                f"{replica_folder}/{STDERR_LOG}",
                f"{replica_folder}/{COMBINED_LOG}",
            )
            if has_own_way:
                rendered = template.render(values)
                rendered.env = env
                param = provider.get_replica_param(values.img_root, rendered, *logs)
                param.cwd = copy_folder or param.cwd
            else:
                param = ReplicaParam([program, *template.args(values)], env, *logs, cwd)
            params.append(param)
            log_dirs.append(replica_folder)
        role_params[role.name] = params
        role_log_dirs[role.name] = log_dirs
    projects = {folder: dict(workspace.projects) for workspace, folder in copies.items()}
    return PopenRequest(app_id, log_dir, role_params, role_log_dirs, workspaces=projects or None)


def add_setup_and_limit(request: PopenRequest, cfg: Mapping[str, CfgVal]) -> None:
    """Change a request as the options ``setup`` and ``time`` say.

    Raises:
        RequestError: An option is not valid.
    """
    setup: Any = cfg.get("setup")
    if setup:
        for param in request.params:
            param.args = setup_command(setup, param.args, "bash")
    if cfg.get("time"):
        request.time_limit = limit_option("time", str(cfg["time"]))


def add_attempts(request: PopenRequest, cfg: Mapping[str, CfgVal]) -> None:
    """Change a request as the options of :class:`~torchx_kit.jobs.attempts.AttemptOpts` say.

    Raises:
        RequestError: An option is not valid.
    """
    resume_dir = cfg.get("resume_dir")
    request.attempts = attempt_rules(cfg)
    if resume_dir:
        path = os.path.abspath(str(resume_dir).replace(macros.app_id, request.app_id))
        for param in request.params:
            param.env[ENV_TORCHX_RESUME_DIR] = path


@functools.lru_cache(maxsize=16)  # thousands of replicas share one string
def join_path(*paths: str | None) -> str:
    """Join search paths, without empty ones.

    >>> join_path("/a:/b:", None, "", ":/c")
    '/a:/b:/c'
    """
    stripped = (path.strip(os.pathsep) for path in paths if path)
    return os.pathsep.join(path for path in stripped if path)


def process_path(own: str | None, cwd: str | None, inherited: str | None) -> str:
    """Return the search path of a process: its own, the inherited one, the working directory.

    In the working directory, another user's program may have the name of a system's program. So it
    comes last, unless the option ``prepend_cwd`` has put it first, too.

    >>> process_path("/role:/here", "/here", "/bin"), process_path("/here:/here", "/here", "/bin")
    ('/role:/bin:/here', '/here:/bin:/here')

    Args:
        own: The PATH in the request, which ends with the working directory.
        cwd: The working directory; None if it is not in the path.
        inherited: The PATH of this machine.
    """
    above, _, last = join_path(own).rpartition(os.pathsep)
    if cwd and last == cwd.rstrip(os.pathsep):
        return join_path(above, inherited, cwd)
    return join_path(own, inherited)


def _copy(role: Role) -> Role:
    # Copy what an image provider may change in the role.
    new = copy.copy(role)
    new.args = list(role.args)
    new.env = dict(role.env)
    return new
