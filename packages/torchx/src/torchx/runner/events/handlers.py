"""Import path of the event handlers in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.events.handlers",
    names={
        "PluginType": "torchx.plugins._registration",
        "registry": "torchx.plugins._registry",
    },
)
