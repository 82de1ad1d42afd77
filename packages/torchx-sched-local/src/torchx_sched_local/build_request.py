"""From an app to the processes to start. Makes nothing, asks nobody."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable

from torchx_kit.names.limits import FILE, fit_names
from torchx_sched_local.images import ImageProvider
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, ReplicaParam
from torchx_sched_local.store.layout import COMBINED_LOG, ERROR_FILE, STDERR_LOG, STDOUT_LOG
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import RoleTemplate, macros

#: The variable that names the folder for torchelastic's logs.
ENV_PET_LOG_DIR = "PET_LOG_DIR"


def make_request(
    app: AppDef,
    app_id: str,
    log_dir: str,
    provider: ImageProvider,
    path_for: Callable[[str | None, str | None], str],
) -> PopenRequest:
    """Returns the processes of an app.

    Args:
        app: the app, which is not changed
        app_id: its id
        log_dir: its folder
        provider: says what images are
        path_for: returns the search path for a role's own one and its working directory
    """
    folders = fit_names((role.name for role in app.roles), FILE)
    role_params: dict[str, list[ReplicaParam]] = {}
    role_log_dirs: dict[str, list[str]] = {}
    for original in app.roles:
        role = _copy(original)
        values = macros.Values(provider.fetch_role(role), app_id, "0", ENV_RANK0_HOST)
        template = RoleTemplate(role)
        start = _starter(provider, values.img_root, template)
        folder = os.path.join(log_dir, folders[role.name])
        pet_log_dir = os.path.join(log_dir, "torchelastic", folders[role.name])
        cwd = provider.get_cwd(role.image)
        paths: dict[str | None, str] = {}
        params: list[ReplicaParam] = []
        log_dirs: list[str] = []
        for k in range(role.num_replicas):
            values.replica_id = str(k)
            replica_folder = f"{folder}/{k}"
            env = template.env(values)
            path = env.get("PATH")
            if path not in paths:
                paths[path] = path_for(path, cwd)
            env["PATH"] = paths[path]
            env[ENV_RANK0_HOST] = "localhost"
            env.setdefault(ENV_ERROR_FILE, f"{replica_folder}/{ERROR_FILE}")
            env.setdefault(ENV_PET_LOG_DIR, pet_log_dir)
            params.append(start(values, env, replica_folder))
            log_dirs.append(replica_folder)
        role_params[role.name] = params
        role_log_dirs[role.name] = log_dirs
    return PopenRequest(app_id, log_dir, role_params, role_log_dirs)


def join_path(*paths: str | None) -> str:
    """Joins search paths, without empty ones.

    >>> join_path("/a:/b:", None, "", ":/c")
    '/a:/b:/c'
    """
    stripped = (path.strip(os.pathsep) for path in paths if path)
    return os.pathsep.join(path for path in stripped if path)


def _copy(role: Role) -> Role:
    # an image provider may change the role
    new = copy.copy(role)
    new.args = list(role.args)
    new.env = dict(role.env)
    return new


def _starter(
    provider: ImageProvider, img_root: str, template: RoleTemplate
) -> Callable[[macros.Values, dict[str, str], str], ReplicaParam]:
    """Returns what makes the parameters of a role's replicas: quickly, if the provider allows."""
    if type(provider).get_replica_param is not ImageProvider.get_replica_param:

        def as_provided(values: macros.Values, env: dict[str, str], folder: str) -> ReplicaParam:
            rendered = template.render(values)
            rendered.env = env
            return provider.get_replica_param(
                img_root,
                rendered,
                f"{folder}/{STDOUT_LOG}",
                f"{folder}/{STDERR_LOG}",
                f"{folder}/{COMBINED_LOG}",
            )

        return as_provided

    program = provider.get_entrypoint(img_root, template.role)
    cwd = provider.get_cwd(template.role.image)

    def start(values: macros.Values, env: dict[str, str], folder: str) -> ReplicaParam:
        return ReplicaParam(
            [program, *template.args(values)],
            env,
            f"{folder}/{STDOUT_LOG}",
            f"{folder}/{STDERR_LOG}",
            f"{folder}/{COMBINED_LOG}",
            cwd,
        )

    return start
