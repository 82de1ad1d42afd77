"""Apps for the tests on the double of LSF, and functions that read the double's jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from torchx_specs import AppDef, Resource, Role

_NUMBER = re.compile(r"\d+")


def app(*args: str, count: int = 1, memory: int = 50, gpus: int = 0, name: str = "app") -> AppDef:
    role = Role(
        "main",
        image="",
        entrypoint="bash",
        args=["-c", *args],
        num_replicas=count,
        resource=Resource(cpu=1, gpu=gpus, memMB=memory),
    )
    return AppDef(name, [role])


def jobs(folder: Path) -> list[dict[str, object]]:
    """Return the data of the double's jobs, in the order of their ids and indices."""
    paths = sorted(
        folder.glob("*.json"), key=lambda path: list(map(int, _NUMBER.findall(path.stem)))
    )
    return [json.loads(path.read_text()) for path in paths]


def unfinished(folder: Path) -> list[str]:
    """Return the names of the double's jobs that have not ended."""
    return [str(job["name"]) for job in jobs(folder) if job["stat"] not in ("DONE", "EXIT")]
