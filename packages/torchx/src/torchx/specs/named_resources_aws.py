"""Import path of the AWS named resources in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_resources_aws",
    names={
        "GiB": "torchx_specs.model.constants",
        "Resource": "torchx_specs",
        "EFA_DEVICE": "torchx._legacy_specs",
        "NEURON_DEVICE": "torchx._legacy_specs",
    },
)
