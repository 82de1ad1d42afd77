"""Import path of the log streaming helpers in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx._legacy_logs",
    names={
        "none_throws": "torchx.util.types",
        "_find_role_replicas": "torchx_cli.logs.replicas:find_role_replicas",
        "_prefix_line": "torchx_cli.logs.reader:prefix_line",
    },
)
