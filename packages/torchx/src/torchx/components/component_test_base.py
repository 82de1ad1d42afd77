"""Import path of the base class for tests of components in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.component_test_base",
    "torchx_specs",
    names={
        "get_component": "torchx_runner.components.finder",
        "get_runner": "torchx_runner.api",
        "_create_args_parser": "torchx._argparse",
    },
)
