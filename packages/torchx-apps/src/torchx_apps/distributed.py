"""Ranks, devices and the process group of a job, with or without a launcher.

The same script runs under torchrun (``dist.ddp``), under a launcher that sets ``RANK`` and
``WORLD_SIZE``, and alone::

    from torchx_apps import distributed as dist

    device = dist.init_pg()
    with dist.on_local_rank0_first():
        download_dataset()  # once a node; the others find it there
    model = Model().to(device)

Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import TYPE_CHECKING, Any, Literal

from .cuda import has_cuda_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

Backend = Literal["nccl", "gloo", "auto"]

# How often each of the two context managers below was entered with this process group's store. All
# processes enter them in the same order, so the count names the same entry everywhere.
_entries: dict[str, int] = {}
_entries_store: Any = None


def local_rank() -> int:
    """This process's number on its node: ``LOCAL_RANK``, 0 without a launcher."""
    if "LOCAL_RANK" not in os.environ and _process_group() is not None and world_size() > 1:
        warnings.warn(
            "a process group exists but LOCAL_RANK is not set, assuming local rank 0;"
            " start the job with torchrun, or set LOCAL_RANK",
            stacklevel=2,
        )
    return _from_environment("LOCAL_RANK", 0)


def local_cuda_device() -> torch.device:
    """The GPU of this process: ``cuda:<local rank>``."""
    import torch

    return torch.device(f"cuda:{local_rank()}")


def local_device() -> torch.device:
    """The device that this process computes on.

    With a process group it is what the group's backend communicates: this process's GPU for
    nccl, else the CPU. Without one it is ``cuda`` if there is a GPU, else the CPU.
    """
    import torch

    group = _process_group()
    if group is not None:
        return local_cuda_device() if group.get_backend() == "nccl" else torch.device("cpu")
    return torch.device("cuda" if has_cuda_devices() else "cpu")


def rank() -> int:
    """This process's number in the job: of the process group, else ``RANK``, else 0."""
    group = _process_group()
    return int(group.get_rank()) if group is not None else _from_environment("RANK", 0)


def world_size() -> int:
    """How many processes the job has: of the process group, else ``WORLD_SIZE``, else 1."""
    group = _process_group()
    return int(group.get_world_size()) if group is not None else _from_environment("WORLD_SIZE", 1)


def is_rank0() -> bool:
    """Whether this is the first process of the job."""
    return rank() == 0


def is_local_rank0() -> bool:
    """Whether this is the first process of its node."""
    return local_rank() == 0


def init_pg(backend: Backend = "auto", **kwargs: Any) -> torch.device:
    """Makes the default process group, whatever started this process.

    Under torchrun, or with ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` set, the
    group spans the job. Otherwise it is a group of this process alone, so that code written for a
    job runs in a notebook or a test; ``MASTER_ADDR`` and ``MASTER_PORT`` are then set if they are
    not, since some libraries insist on them.

    Args:
        backend: ``auto`` means nccl if this process can use a GPU with it, else gloo.
        **kwargs: For ``torch.distributed.init_process_group``. With ``init_method``, ``store``,
            ``rank`` or ``world_size`` among them the group is exactly as they say.

    Returns:
        The device that the group communicates: this process's GPU for nccl, else the CPU.
    """
    import torch.distributed as dist

    # DistributedDataParallel imports this at its first use, and functions in it then take the
    # process group for a default argument. That keeps gloo's threads alive past
    # destroy_process_group(), and about one process in twenty aborts when it ends.
    import torch.distributed.nn  # noqa: F401

    if backend == "auto":
        backend = "nccl" if has_cuda_devices() and dist.is_nccl_available() else "gloo"
    if not (kwargs.keys() & {"init_method", "store", "rank", "world_size"} or _is_launched()):
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "0")
        # A store in memory: no port is opened, and the caller's MASTER_ADDR is not contacted.
        kwargs = {**kwargs, "store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend=backend, **kwargs)
    return _device_of(backend)


def _device_of(backend: str) -> torch.device:
    import torch

    return local_cuda_device() if backend == "nccl" else torch.device("cpu")


def _is_launched() -> bool:
    import torch.distributed as dist

    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return dist.is_torchelastic_launched() or all(name in os.environ for name in needed)


@contextlib.contextmanager
def on_rank0_first() -> Iterator[None]:
    """Runs the body on rank 0, and on the other ranks once rank 0 is through.

    If the body raises on rank 0 the others run it all the same, so that nobody waits for ever.
    Without a process group the body just runs.
    """
    with _first_on(is_first=is_rank0(), scope="job"):
        yield


@contextlib.contextmanager
def on_local_rank0_first() -> Iterator[None]:
    """Runs the body on local rank 0 of each node, and then on the other ranks of that node.

    Nodes do not wait for each other: it suffices that all ranks of one node come here.
    If the body raises on local rank 0 the others run it all the same, so that nobody waits for
    ever. Without a process group the body just runs.
    """
    # torchrun numbers the nodes. Without it, ranks of a node follow each other.
    node = os.environ.get("GROUP_RANK", f"at{rank() - local_rank()}")
    with _first_on(is_first=is_local_rank0(), scope=f"node/{node}"):
        yield


@contextlib.contextmanager
def _first_on(is_first: bool, scope: str) -> Iterator[None]:
    group = _process_group()
    if group is None:
        yield
        return
    store = _store()
    key = f"torchx/first/{scope}/{_next_entry(store, scope)}"
    if not is_first:
        store.wait([key])
    try:
        yield
    finally:
        if is_first:
            store.set(key, "through")


def _next_entry(store: Any, scope: str) -> int:
    global _entries_store
    if store is not _entries_store:  # the process group was made anew
        _entries_store = store
        _entries.clear()
    _entries[scope] = _entries.get(scope, 0) + 1
    return _entries[scope]


def _store() -> Any:
    """The key-value store that the default process group was made with.

    A barrier would do for a whole job, but it deadlocks when only one node comes to it, and a
    group for each node cannot be made without all nodes taking part. torch has no public name for
    its store; this one is stable since 1.8.
    """
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def _process_group() -> Any:
    """``torch.distributed`` if it has a default process group, else None."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return None
    return dist if dist.is_available() and dist.is_initialized() else None


def _from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the environment variable {name} is {text!r}, not an integer") from None
