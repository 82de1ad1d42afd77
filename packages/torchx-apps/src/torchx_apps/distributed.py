"""Ranks, devices and the process group of a job, with or without a launcher.

The same script runs with torchrun (``dist.ddp``), with a launcher that sets ``RANK`` and
``WORLD_SIZE``, and without a launcher::

    from torchx_apps import distributed as dist

    device = dist.init_pg()
    with dist.on_local_rank0_first():
        download_dataset()  # the first process of each node downloads; the others find the files
    model = Model().to(device)

Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

Backend = Literal["nccl", "gloo", "auto"]

# Counts how often this process entered the context managers below, by scope ("job" or "node/...").
# All processes enter them in the same order, so a count identifies the same entry in all processes.
# The counts are valid for one process group, which is identified by its store.
_entries: dict[str, int] = {}
_entries_store: Any = None


def has_cuda_devices() -> bool:
    """Return whether torch is installed, was built with CUDA and finds at least one device."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return False
    return bool(torch.cuda.is_available() and torch.cuda.device_count() > 0)


def local_rank() -> int:
    """Return the rank of this process on its node: ``LOCAL_RANK``, or 0 if it is not set.

    Warn if ``LOCAL_RANK`` is not set although a process group has several processes.
    """
    if "LOCAL_RANK" not in os.environ and _process_group() is not None and world_size() > 1:
        warnings.warn(
            "LOCAL_RANK is not set although a process group exists; using local rank 0. Start the"
            " job with torchrun, or set LOCAL_RANK",
            stacklevel=2,
        )
    return _from_environment("LOCAL_RANK", 0)


def local_cuda_device() -> torch.device:
    """Return the GPU of this process, ``cuda:<local rank>``."""
    import torch

    return torch.device(f"cuda:{local_rank()}")


def local_device() -> torch.device:
    """Return the device on which this process computes.

    With a process group, it is the device of the group's backend: this process's GPU for nccl, the
    CPU otherwise. Without a group, it is ``cuda`` if there is a GPU, the CPU otherwise.
    """
    import torch

    group = _process_group()
    if group is not None:
        return local_cuda_device() if group.get_backend() == "nccl" else torch.device("cpu")
    return torch.device("cuda" if has_cuda_devices() else "cpu")


def rank() -> int:
    """Return the rank of this process, from the process group or ``RANK``; the default is 0."""
    group = _process_group()
    return int(group.get_rank()) if group is not None else _from_environment("RANK", 0)


def world_size() -> int:
    """Return the number of processes, from the process group or ``WORLD_SIZE``; default 1."""
    group = _process_group()
    return int(group.get_world_size()) if group is not None else _from_environment("WORLD_SIZE", 1)


def is_rank0() -> bool:
    """Return whether this is the first process of the job."""
    return rank() == 0


def is_local_rank0() -> bool:
    """Return whether this is the first process of its node."""
    return local_rank() == 0


def init_pg(backend: Backend = "auto", **kwargs: Any) -> torch.device:
    """Create the default process group, with or without a launcher.

    With torchrun, or with ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` set, the
    group contains all processes of the job. Otherwise it contains this process alone, so that the
    same code runs in a notebook or a test. In that case ``MASTER_ADDR`` and ``MASTER_PORT`` are set
    if they are missing, because some libraries require them.

    Args:
        backend: A backend of ``torch.distributed``. ``auto`` means nccl if this process can use
            nccl with a GPU, otherwise gloo.
        **kwargs: Arguments of ``torch.distributed.init_process_group``. If they include
            ``init_method``, ``store``, ``rank`` or ``world_size``, they define the group.

    Returns:
        The device of the group's backend: this process's GPU for nccl, the CPU otherwise.
    """
    import torch.distributed as dist

    # Import this module before the process group exists. Otherwise DistributedDataParallel imports
    # it later, and the module's functions then hold the process group as a default argument. This
    # keeps gloo's threads alive after destroy_process_group(), and about one process in twenty
    # aborts when it exits.
    import torch.distributed.nn  # noqa: F401

    if backend == "auto":
        backend = "nccl" if has_cuda_devices() and dist.is_nccl_available() else "gloo"
    if not (kwargs.keys() & {"init_method", "store", "rank", "world_size"} or _is_launched()):
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "0")
        # A store in memory opens no port and does not contact MASTER_ADDR.
        kwargs = {**kwargs, "store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend=backend, **kwargs)
    return local_device()


def _is_launched() -> bool:
    import torch.distributed as dist

    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return dist.is_torchelastic_launched() or all(name in os.environ for name in needed)


@contextlib.contextmanager
def on_rank0_first() -> Iterator[None]:
    """Run the body on rank 0 first, then on the other ranks.

    If the body raises on rank 0, the other ranks still run it, so that none waits forever. Without
    a process group, the body runs immediately.
    """
    with _first_on(is_first=is_rank0(), scope="job"):
        yield


@contextlib.contextmanager
def on_local_rank0_first() -> Iterator[None]:
    """Run the body on local rank 0 of each node first, then on the other ranks of the node.

    Nodes do not wait for each other, so ranks of other nodes need not call this. If the body raises
    on local rank 0, the other ranks still run it, so that none waits forever. Without a process
    group, the body runs immediately.
    """
    # torchrun sets GROUP_RANK. Without it, use the rank of the node's first process.
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
    if store is not _entries_store:  # the process group was replaced
        _entries_store = store
        _entries.clear()
    _entries[scope] = _entries.get(scope, 0) + 1
    return _entries[scope]


def _store() -> Any:
    """Return the key-value store of the default process group.

    The store replaces a barrier, which would deadlock if only one node reached it, and a process
    group for each node, which all nodes would have to create together. torch has no public function
    that returns the store; the private one exists since torch 1.8.
    """
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def _process_group() -> Any:
    """Return ``torch.distributed`` if it has a default process group, otherwise None."""
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
