"""Import path of the MLflow tracker in older TorchX releases."""

from torchx._forward import forward, install_hint

forward(
    __name__,
    "torchx_tracker_mlflow",
    "torchx_specs.trackers.api",
    names={
        "ENV_TORCHX_JOB_ID": "torchx_specs.settings",
        "TAG_ARTIFACT_MD_PREFIX": "torchx._legacy_tracker",
        "get_configs": "torchx_runner.config.api",
        "on_rank0_first": "torchx_apps.distributed",
    },
    missing=install_hint("mlflow", "torchx-tracker-mlflow"),
)
