"""Mounts of a role, and the parser of mount options such as ``type=bind,src=...``."""

from __future__ import annotations

import os
import re
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
    """A host path that is mounted into the container."""

    src_path: str
    dst_path: str
    read_only: bool = False


@dataclass
class VolumeMount:
    """A persistent volume that is mounted into the container."""

    src: str
    dst_path: str
    read_only: bool = False


@dataclass
class DeviceMount:
    """A host device in the container; ``permissions`` are any of ``r``, ``w`` and ``m`` (mknod)."""

    src_path: str
    dst_path: str
    permissions: str = "rwm"


class MountOptionError(RequestError, KeyError):
    """A mount option is unknown, missing or misplaced."""


_CANONICAL = {name: name for name in ("type", "dst", "readonly", "src", "perm")}
_SHORT = r"(?P<src>[^:=]+):(?P<dst>/[^:]*)(?P<ro>:ro)?"
_CANONICAL |= {"destination": "dst", "target": "dst", "read_only": "readonly", "source": "src"}


def parse_mounts(opts: list[str]) -> list[BindMount | VolumeMount | DeviceMount]:
    """Parse the options of ``docker run --mount`` into mounts.

    Each item of ``opts`` is one option, such as ``src=/data``. An option ``type`` begins a new
    mount::

        type=bind,src=<host path>,dst=<container path>[,readonly]
        type=volume,src=<name/id>,dst=<container path>[,readonly]
        type=device,src=/dev/<dev>[,dst=<container path>][,perm=rwm]

    ``SRC:DST`` and ``SRC:DST:ro`` are short forms of a bind mount, and of one that is read-only.
    ``~`` at the start of a bind mount's source is the home directory.

    Raises:
        RequestError: A type, a permission or the value of ``readonly`` is not valid.
        MountOptionError: An option is unknown, missing or misplaced.
    """
    mounts: list[dict[str, str]] = []
    for opt in opts:
        short = re.fullmatch(_SHORT, opt)
        if short:
            mounts.append({"type": "bind", "src": short["src"], "dst": short["dst"]})
            mounts[-1]["readonly"] = str(short["ro"] is not None)
            continue
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
    return [_build(fields) for fields in mounts]


def _build(fields: dict[str, str]) -> BindMount | VolumeMount | DeviceMount:
    kind = fields["type"]
    valid = [t.value for t in MountType]
    if kind not in valid:
        raise RequestError(f"invalid mount type '{kind}', must be one of {valid}")
    for key in ("src",) if kind == MountType.DEVICE.value else ("src", "dst"):
        if not fields.get(key):
            raise MountOptionError(f"a mount of type '{kind}' needs {key}=<path>")
    src = fields["src"]
    if kind == MountType.DEVICE.value:
        permissions = fields.get("perm", "rwm")
        wrong = permissions.strip("rwm")
        if wrong:
            raise RequestError(
                f"invalid permission '{wrong[0]}' in 'perm={permissions}' of a device mount:"
                " use r, w and m"
            )
        return DeviceMount(src, fields.get("dst", src), permissions)
    dst = fields["dst"]
    given = fields.get("readonly", "false")
    try:
        read_only = not given or parse_bool(given)
    except ValueError as e:
        raise RequestError(f"mount option 'readonly': {e}") from None
    if kind == MountType.VOLUME.value:
        return VolumeMount(src, dst, read_only)
    return BindMount(os.path.expanduser(src), dst, read_only)
