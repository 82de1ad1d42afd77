"""Import path of the module that reads ``.torchxconfig`` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.config.api",
    "torchx_specs",
    names={
        "ENV_TORCHXCONFIG": "torchx_specs.settings",
        "get_type_name": "torchx.util.types",
        "get_scheduler_factories": "torchx.schedulers._factories",
        "Scheduler": "torchx_specs.schedulers",
    },
)
