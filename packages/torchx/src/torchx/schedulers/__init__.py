"""The base class of schedulers, and the factories of the installed schedulers."""

from torchx._forward import forward

forward(
    __name__,
    "torchx.schedulers._factories",
    names={"Scheduler": "torchx_specs.schedulers.api", "load_group": "torchx.util.entrypoints"},
    exported=(
        "DEFAULT_SCHEDULER_MODULES",
        "Scheduler",
        "SchedulerFactory",
        "get_default_scheduler_name",
        "get_scheduler_factories",
    ),
)
