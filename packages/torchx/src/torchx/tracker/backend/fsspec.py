"""Import path of the fsspec tracker in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_tracker_fsspec",
    "torchx_specs.trackers.api",
    names={"generate_filename": "torchx._legacy_tracker"},
)
