"""Mounts of a role, and the ``type=bind,src=...`` notation for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from torchx_specs.errors import RequestError, nearest
from torchx_specs.text_values import parse_bool


class MountType(str, Enum):
    """Kinds of mounts."""

    BIND = "bind"
    VOLUME = "volume"
    DEVICE = "device"


@dataclass
class BindMount:
    """Bind-mounts a host path into the worker container."""

    src_path: str
    dst_path: str
    read_only: bool = False


@dataclass
class VolumeMount:
    """Mounts a persistent volume into the worker container."""

    src: str
    dst_path: str
    read_only: bool = False


@dataclass
class DeviceMount:
    """Mounts a host device into the container; ``permissions`` are any of ``r``, ``w`` and ``m``
    (mknod).
    """

    src_path: str
    dst_path: str
    permissions: str = "rwm"


class MountOptionError(RequestError, KeyError):
    """An option of a mount is unknown, missing or out of place."""

    def __str__(self) -> str:  # KeyError would print the repr
        return "; ".join(self.problems)


_CANONICAL = {
    "type": "type",
    "destination": "dst",
    "dst": "dst",
    "target": "dst",
    "read_only": "readonly",
    "readonly": "readonly",
    "source": "src",
    "src": "src",
    "perm": "perm",
}


def parse_mounts(opts: list[str]) -> list[BindMount | VolumeMount | DeviceMount]:
    """Parses a list of options into typed mounts, in a notation like that of ``docker run
    --mount``.

    Several mounts stand in one list; each begins with ``type``::

        type=bind,src=<host path>,dst=<container path>[,readonly]
        type=volume,src=<name/id>,dst=<container path>[,readonly]
        type=device,src=/dev/<dev>[,dst=<container path>][,perm=rwm]

    ``~`` at the start of a bind mount's source is the home directory.

    Raises:
        RequestError: unknown type or permission (also a ValueError), unknown, missing or misplaced
            option (also a KeyError)
    """
    return [_build(fields) for fields in _split(opts)]


def _split(opts: Iterable[str]) -> list[dict[str, str]]:
    mounts: list[dict[str, str]] = []
    for opt in opts:
        key, _, value = opt.partition("=")
        key = key.strip()
        if key not in _CANONICAL:
            raise MountOptionError(
                f"unknown mount option '{key}' in '{opt}';{nearest(key, _CANONICAL)}"
                f" valid options: {', '.join(sorted(_CANONICAL))}"
            )
        key = _CANONICAL[key]
        if key == "type":
            mounts.append({})
        elif not mounts:
            raise MountOptionError(f"type must be specified first, before '{opt}'")
        mounts[-1][key] = value
    return mounts


def _build(fields: dict[str, str]) -> BindMount | VolumeMount | DeviceMount:
    kind = fields["type"]
    if kind == MountType.BIND.value:
        src = os.path.expanduser(_required(fields, "src"))
        return BindMount(src, _required(fields, "dst"), _read_only(fields))
    if kind == MountType.VOLUME.value:
        return VolumeMount(_required(fields, "src"), _required(fields, "dst"), _read_only(fields))
    if kind == MountType.DEVICE.value:
        src = _required(fields, "src")
        permissions = fields.get("perm", "rwm")
        for c in permissions:
            if c not in "rwm":
                raise RequestError(
                    f"invalid permission '{c}' in 'perm={permissions}' of a device mount:"
                    " use r, w and m"
                )
        return DeviceMount(src, fields.get("dst", src), permissions)
    valid = [t.value for t in MountType]
    raise RequestError(f"invalid mount type '{kind}', must be one of {valid}")


def _required(fields: dict[str, str], key: str) -> str:
    if not fields.get(key):
        raise MountOptionError(f"a mount of type '{fields['type']}' needs {key}=<path>")
    return fields[key]


def _read_only(fields: dict[str, str]) -> bool:
    value = fields.get("readonly", "false")
    try:
        return not value or parse_bool(value)
    except ValueError as e:
        raise RequestError(f"mount option 'readonly': {e}") from None
