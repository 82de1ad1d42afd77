"""Import path of the generic named resources in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.named_resources_generic",
    names={
        "GiB": "torchx_specs.model.constants",
        "Resource": "torchx_specs",
    },
)
