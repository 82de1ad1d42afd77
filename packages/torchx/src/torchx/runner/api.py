"""Import path of the runner in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.api",
    "torchx_specs",
    "torchx_specs.schedulers.api",
    names={
        "none_throws": "torchx.util.types",
        "get_component": "torchx_runner.components.finder",
        "get_config": "torchx_runner.config.api",
        "get_configs": "torchx_runner.config.api",
        "log_event": "torchx_runner.events.api",
        # Runner calls it, so that a patch of it takes effect.
        "get_scheduler_factories": "torchx_runner.api:InstalledSchedulers",
        "SchedulerFactory": "torchx.schedulers._factories",
        "WorkspaceMixin": "torchx_specs.workspace",
        "tracker_config_env_var_name": "torchx_kit.trackers.lookup",
        "get_session_id_or_create_new": "torchx_runner.session_id",
        "ENV_TORCHX_JOB_ID": "torchx_specs.settings",
        "ENV_TORCHX_PARENT_RUN_ID": "torchx_specs.settings",
        "ENV_TORCHX_TRACKERS": "torchx_specs.settings",
    },
)
