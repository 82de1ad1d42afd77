"""A site's plugins: a named resource, a tracker, an event handler, a command, and two functions.

One function returns the content of a component file, and the other the name of the default image.
"""

import argparse
import json
import logging
import os
from typing import Any, Iterable, Mapping, Optional

from torchx.cli.cmd_base import SubCommand
from torchx.specs import Resource
from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase, TrackerSource


def gpu_x2() -> Resource:
    return Resource(cpu=16, gpu=2, memMB=122_000)


class FileTracker(TrackerBase):
    def __init__(self, path: str) -> None:
        self.path = path

    def _write(self, **record: object) -> None:
        with open(self.path, "a") as f:
            f.write(json.dumps(record) + "\n")

    def _read(self) -> Iterable[Mapping[str, Any]]:
        with open(self.path) as f:
            return [json.loads(line) for line in f]

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Optional[Mapping[str, object]] = None
    ) -> None:
        self._write(run=run_id, name=name, path=path)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        records = [r for r in self._read() if r["run"] == run_id and "name" in r]
        return {r["name"]: TrackerArtifact(r["name"], r["path"], None) for r in records}

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        self._write(run=run_id, data=kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        data = {}
        for record in self._read():
            if record["run"] == run_id:
                data.update(record.get("data", {}))
        return data

    def add_source(
        self, run_id: str, source_id: str, artifact_name: Optional[str] = None
    ) -> None: ...

    def sources(self, run_id: str, artifact_name: Optional[str] = None) -> Iterable[TrackerSource]:
        return []

    def lineage(self, run_id: str) -> Lineage:
        return Lineage()

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        return sorted({record["run"] for record in self._read()})


def create_tracker(config: Optional[str]) -> TrackerBase:
    assert config is not None
    return FileTracker(config)


def event_handler() -> logging.Handler:
    return logging.FileHandler(os.environ["ACME_EVENTS"])


class CmdQuota(SubCommand):
    """Show the quota of a team."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        subparser.add_argument("--team", required=True, help="the name of the team")
        subparser.add_argument("users", nargs="*")

    def run(self, args: argparse.Namespace) -> None:
        print(f"quota of {args.team}: {args.users}")


def get_file_contents(path: str) -> str:
    if path != "store://train.py":
        raise FileNotFoundError(path)
    return (
        "import torchx.specs as specs\n"
        "def job(name: str = 'n') -> specs.AppDef:\n"
        "    role = specs.Role(name, 'i', entrypoint='echo', args=['stored'],\n"
        "                      resource=specs.Resource(1, 0, 1))\n"
        "    return specs.AppDef(name, [role])\n"
    )


def get_torchx_image(version: str) -> str:
    return f"registry.acme.example/torchx:{version}"
