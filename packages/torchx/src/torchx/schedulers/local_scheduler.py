"""Import path of the scheduler ``local_cwd`` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_sched_local.scheduler",
    "torchx_specs.schedulers.api",
    "torchx_specs",
    "torchx_kit.names.ids",
    "torchx_kit.logs.lines",
    names={
        "none_throws": "torchx.util.types",
        "Tee": "torchx_kit.logs.streams",
        "Opts": "torchx_sched_local.scheduler:LocalOpts",
    },
)
