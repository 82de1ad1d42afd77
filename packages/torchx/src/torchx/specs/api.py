"""Import path of the data model in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs",
    "torchx_specs.options.run_options",
    "torchx_specs.model.status",
    "torchx_specs.model.mounts",
    "torchx_specs.model.role_overrides",
    names={
        "_null_resource": "torchx._legacy_specs",
        "to_dict": "torchx.util.types",
        "get_type_name": "torchx.util.types",
        "TORCHX_HOME": "torchx_kit.home",
        "materialize_appdef": "torchx._argparse",
        "T": "torchx_specs.model.app",
        "YELLOW_BOLD": "torchx._legacy_specs",
        "RESET": "torchx._legacy_specs",
    },
)
