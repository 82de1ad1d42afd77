"""Searches an app for references to secrets in places where no scheduler replaces them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_specs.model.app import AppDef
from torchx_specs.model.secrets import is_secret_reference

# ${secret:-x} and ${secret:0} do not match: they are parameter expansions of a shell.
_REFERENCE = re.compile(r"\$\{secret:[A-Za-z][\w./-]*\}")


def misplaced_secrets(app: AppDef, resolves_secrets: bool) -> Iterator[str]:
    """Yield a problem for each text with a misplaced reference to a secret.

    A reference must be the whole value of an environment variable.

    Args:
        app: The app.
        resolves_secrets: Whether the scheduler resolves references. If so, overlays in a role's
            metadata may have references as values of a container's environment variables.
    """
    yield from _problems(app.metadata, "metadata")
    for role in app.roles:
        mounts = [vars(mount) for mount in role.mounts or () if hasattr(mount, "__dict__")]
        where = f"role '{role.name}':"
        yield from _problems(role.entrypoint, f"{where} entrypoint")
        yield from _problems(role.image, f"{where} image")
        yield from _problems(role.args, f"{where} args")
        yield from _problems(role.metadata, f"{where} metadata", resolves_secrets)
        yield from _problems(mounts, f"{where} mounts")
        env = role.env if isinstance(role.env, Mapping) else {}
        for key, value in env.items():
            if not _REFERENCE.fullmatch(str(value)):
                yield from _problems(value, f"{where} env['{key}']")


def _problems(value: Any, where: str, may_have_env: bool = False) -> Iterator[str]:
    """Yield a problem for each text with a reference in nested data.

    Args:
        value: The data.
        where: The place of the data, for the message.
        may_have_env: Whether to allow references in environments of containers, which are lists of
            ``{"name": ..., "value": ...}``.
    """
    if isinstance(value, Mapping):
        is_variable = may_have_env and value.keys() == {"name", "value"}
        if is_variable and is_secret_reference(str(value["value"])):
            return
        for key, item in value.items():
            yield from _problems(item, f"{where}[{key!r}]", may_have_env)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _problems(item, f"{where}[{index}]", may_have_env)
    elif isinstance(value, str) and (found := _REFERENCE.search(value)):
        yield (
            f"{where} contains {found[0]}; a reference to a secret must be the whole value of a"
            " variable in env, which the program can read"
        )
