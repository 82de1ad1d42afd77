"""Helpers: roles, the scripts of their dry runs, and the type of the fixture ``command_double``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, Resource, Role

Double = Callable[..., Path]


def role(name: str = "trainer", **attributes: object) -> Role:
    values: dict[str, object] = {
        "image": "",
        "entrypoint": "python",
        "args": ["-m", "train"],
        "resource": Resource(cpu=2, gpu=0, memMB=1024),
    }
    return Role(name, **{**values, **attributes})  # type: ignore[arg-type]


def script_text(scheduler: SlurmScheduler, *roles: Role, **cfg: object) -> str:
    info = scheduler.submit_dryrun(AppDef("my app", list(roles)), cfg)
    made: str = info.request.materialize()
    return made


def directives(made: str) -> list[dict[str, str]]:
    """Return the directives of each component in a script, by name (``--nodes``)."""
    components: list[dict[str, str]] = [{}]
    for line in re.findall(r"^#SBATCH (.*)$", made, re.M):
        if line == "hetjob":
            components.append({})
        else:
            name, _, value = line.partition("=")
            components[-1][name] = value
    return components
