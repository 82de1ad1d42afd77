"""The request of each app of a batch, computed from the request of one app.

A dry run checks an app and computes its request. For a short app, the dry run takes longer than
everything else. If two apps differ only in arguments and in the values of variables, their requests
differ only there too, so that one dry run is enough.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from torchx_kit.names.limits import FILE, fit_name
from torchx_sched_local.build_request import ENV_PET_LOG_DIR
from torchx_sched_local.image_providers import ImageProvider
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, ReplicaParam
from torchx_sched_local.store.layout import COMBINED_LOG, ERROR_FILE, STDERR_LOG, STDOUT_LOG
from torchx_specs.model.app import AppDef, AppDryRunInfo, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import is_template, macros, substitute
from torchx_specs.settings import ENV_TORCHX_INTERNAL_SESSION_ID, ENV_TORCHX_JOB_ID

_SECRET = "${secret"  # noqa: S105 - the start of a reference, not a secret
# A dry run derives other parts of the request from these variables, so an app that sets one of
# them has no template.
_SPECIAL = {"PATH", ENV_RANK0_HOST, ENV_TORCHX_JOB_ID, ENV_TORCHX_INTERNAL_SESSION_ID}


class RequestTemplate:
    """Computes the requests of a batch.

    Args:
        data: The template as plain data, from :meth:`of`.

    Attributes:
        data: The template as plain data.
        role: Name of the role.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.role: str = data["role"]
        self._program: str = data["program"]
        self._cwd: str | None = data["cwd"]
        self._image: str = data["image"]
        self._values: dict[str, str] = data["values"]
        self._env: dict[str, str] = data["env"]
        self._macros: dict[str, str] = data["macros"]
        self._pet_folder = os.path.join("torchelastic", fit_name(self.role, FILE))

    @classmethod
    def of(
        cls, app: AppDef, info: AppDryRunInfo[PopenRequest], provider: ImageProvider
    ) -> RequestTemplate | None:
        """Return a template for apps that differ from ``app`` only in arguments and variables.

        Args:
            app: One of the apps, as it was before its dry run.
            info: The dry run of ``app``.
            provider: Resolves the image to a folder.

        Returns:
            The template, or None if the requests of such apps may differ in other fields.
        """
        prepared = info.app
        if prepared is None or len(app.roles) != 1 or len(prepared.roles) != 1:
            return None
        before, after = app.roles[0], prepared.roles[0]
        if (
            type(before) is not Role
            or before.overrides
            or before.num_replicas != 1
            or before.max_retries
            or before.env.keys() & _SPECIAL
            or any("=" in name for name in before.env)
            or any(_SECRET in text for text in after.env.values())
            or bool((info.cfg or {}).get("auto_set_cuda_visible_devices"))
            or type(provider).get_replica_param is not ImageProvider.get_replica_param
        ):
            return None
        # Before a dry run, the runner adds variables and may replace values.
        added = {k: text for k, text in after.env.items() if before.env.get(k) != text}
        templates = {k: text for k, text in added.items() if is_template(text)}
        own = before.env.keys() - added.keys()
        of_folder = {ENV_ERROR_FILE, ENV_PET_LOG_DIR} - added.keys()
        (param,) = info.request.role_params[after.name]
        skipped = own | templates.keys() | of_folder
        return cls(
            {
                "role": after.name,
                "program": param.args[0],
                "cwd": param.cwd,
                "image": provider.fetch_role(after),
                "values": dict(before.env),
                "env": {k: text for k, text in param.env.items() if k not in skipped},
                "macros": templates,
            }
        )

    def matches(self, args: Sequence[str], env: Mapping[str, str]) -> bool:
        """Return True if the template applies to an app, and a dry run would accept the app.

        Args:
            args: The app's arguments.
            env: The app's variables.
        """
        text = "\n".join([*args, *env.values()])
        if env.keys() != self._values.keys() or "\0" in text or _SECRET in text:
            return False
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
        return True

    def differences(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of an app whose values differ from the template's values."""
        return {name: text for name, text in env.items() if self._values[name] != text}

    def environment(self, differences: Mapping[str, str]) -> dict[str, str]:
        """Return an app's own variables: the template's values, replaced by ``differences``.

        Args:
            differences: The result of :meth:`differences`.
        """
        return {**self._values, **differences}

    def request(
        self, app_id: str, folder: str, args: Sequence[str], env: Mapping[str, str]
    ) -> PopenRequest:
        """Return the request of an app.

        Args:
            app_id: The app's id.
            folder: The app's folder.
            args: The app's arguments.
            env: The app's variables.
        """
        values = macros.Values(self._image, app_id, "0", ENV_RANK0_HOST).to_dict()
        own = {name: substitute(text, values) for name, text in env.items()}
        added = {name: substitute(text, values) for name, text in self._macros.items()}
        final = {**own, **self._env, **added}
        final.setdefault(ENV_ERROR_FILE, f"{folder}/{ERROR_FILE}")
        final.setdefault(ENV_PET_LOG_DIR, f"{folder}/{self._pet_folder}")
        param = ReplicaParam(
            [self._program, *(substitute(arg, values) for arg in args)],
            final,
            f"{folder}/{STDOUT_LOG}",
            f"{folder}/{STDERR_LOG}",
            f"{folder}/{COMBINED_LOG}",
            self._cwd,
        )
        return PopenRequest(app_id, folder, {self.role: [param]}, {self.role: [folder]})
