"""Import path of the base class of trackers and of ``AppRun`` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_tracker",
    "torchx_specs.trackers.api",
    "torchx_tracker.trackers",
    "torchx_kit.trackers.lookup",
    "torchx_specs.settings",
    names={
        "tracker_config_env_var_name": "torchx_kit.trackers.lookup",
        "load_group": "torchx.util.entrypoints",
        "load_module": "torchx.util.modules",
        "plugins": "torchx:plugins",
    },
)
