"""Import path of the device mounts in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_kit.devices",
    names={
        "DeviceMount": "torchx_specs",
        "EFA_DEVICE": "torchx._legacy_specs",
        "NEURON_DEVICE": "torchx._legacy_specs",
    },
)
