"""Checks of the Docker Engine, for ``torchx doctor``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from torchx_kit.checks import error, ok, query_seconds, warning
from torchx_kit.images.engine import NoEngineError, connect, engine_address, engine_errors
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

#: The check warns if the disk with the images has less free space than this, in GB.
_MIN_FREE_GB = 5.0


def check_engine(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Check the docker library, the engine, its image store, the free space, and the GPU runtimes.

    Args:
        cfg: The scheduler's options; these checks use none of them.
    """
    try:
        from docker import __version__ as library
    except ImportError as e:
        yield error(f"the docker library cannot be imported: {e}", "run: pip install docker")
        return
    yield ok(f"docker library {library}, engine at {engine_address()}")
    try:
        with engine_errors("reach the Docker Engine"), closing(connect(query_seconds())) as client:
            version, info = client.version(), client.info()
    except NoEngineError as e:
        yield error(str(e).partition("; start it")[0], _remedy(str(e)))
        return
    except BackendError as e:
        yield error(e, "run 'docker info', and correct its problem first")
        return
    yield ok(
        f"Docker Engine {version.get('Version')} (API {version.get('ApiVersion')},"
        f" {version.get('Os')}/{version.get('Arch')})"
    )
    yield _image_store(info)
    yield from _check_disk(str(info.get("DockerRootDir") or ""))
    runtimes = ", ".join(sorted(info.get("Runtimes") or {}))
    yield ok(f"runtimes: {runtimes}{'' if 'nvidia' in runtimes else ' (none for GPUs)'}")


def _remedy(message: str) -> str:
    if "ermission denied" in message:
        return "add yourself to the group docker (sudo usermod -aG docker $USER), and log in again"
    return "start the engine (sudo systemctl start docker), or set DOCKER_HOST to its address"


def _image_store(info: Mapping[str, Any]) -> CheckResult:
    status = {str(row[0]): str(row[1]) for row in info.get("DriverStatus") or () if len(row) > 1}
    is_containerd = "containerd" in status.get("driver-type", "")
    store = "containerd" if is_containerd else "the engine's own"
    return ok(f"image store: {store}, driver {info.get('Driver')}")


def _check_disk(folder: str) -> Iterator[CheckResult]:
    """Yield a result for the free space for images, if the engine's folder is on this machine."""
    address = os.environ.get("DOCKER_HOST") or "unix:"
    if not folder or not address.startswith("unix:"):
        return
    try:
        free = shutil.disk_usage(folder).free / 1e9
    except OSError:
        return  # The folder belongs to another user.
    if free < _MIN_FREE_GB:
        yield warning(
            f"{folder} has {free:.1f} GB free",
            "run 'torchx workspace prune' and 'docker system prune'",
        )
    else:
        yield ok(f"{folder} has {free:.1f} GB free")
