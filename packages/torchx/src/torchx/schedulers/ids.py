"""Import path of the random ids in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_kit.names.ids",
    names={
        "get_len_random_id": "torchx_kit.names.ids:random_id",
    },
)
