"""Measure one series at one size: growth.py SERIES SIZE. Prints processor seconds."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PLUGIN = """
from datetime import datetime, timedelta, timezone
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.schedulers import ListAppResponse, Scheduler
from torchx_specs import AppState

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Some(Scheduler):
    def _submit_dryrun(self, app, cfg):
        raise NotImplementedError

    def schedule(self, info):
        raise NotImplementedError

    def describe(self, app_id):
        return None

    def list(self, cfg=None):
        return [
            ListAppResponse(
                app_id=f"app{number}",
                state=AppState.RUNNING,
                name="train",
                submitted=FIRST + timedelta(seconds=number),
            )
            for number in range(SIZE)
        ]

    def _cancel_existing(self, app_id):
        raise NotImplementedError


@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("some", lambda session_name, **_: Some("some", session_name))
"""
COMPONENT = '''
def train{number}(epochs: int = 1, names: list[str] | None = None) -> specs.AppDef:
    """Train a model."""
    return specs.AppDef("train", roles=[specs.Role("main", image="", entrypoint="true")])
'''


def command(*argv: str) -> Callable[[], object]:
    """Return a function that runs ``torchx`` in this process, as its entry point does."""
    import torchx_cli.main  # noqa: F401 - the import is not part of the work
    from torchx_cli.__main__ import main

    def run() -> None:
        sys.argv[1:] = argv
        with contextlib.redirect_stdout(io.StringIO()):
            main()

    return run


def components(size: int) -> str:
    functions = "".join(COMPONENT.format(number=number) for number in range(size))
    Path("many.py").write_text(f"import torchx_specs as specs\n{functions}")
    return "many.py"


def document(size: int, suffix: str) -> str:
    from torchx_specs import AppDef, Resource, Role
    from torchx_specs.formats import serialize

    app = AppDef("train")
    for number in range(size):
        role = Role(f"role{number}", "image", entrypoint="true", resource=Resource(1, 0, 1))
        role.args = ["--id", str(number), "token=x"]
        role.env = {"RANK": str(number), "API_TOKEN": "x"}
        app.roles.append(role)
    write = serialize.to_yaml if suffix == "yaml" else serialize.to_json
    Path(f"app.{suffix}").write_text(write(app))
    return f"app.{suffix}"


def scheduler(size: int) -> None:
    """Install a scheduler with ``size`` apps."""
    about = Path("plugins/some-1.0.dist-info")
    about.mkdir(parents=True)
    Path("plugins/some_scheduler.py").write_text(PLUGIN.replace("SIZE", str(size)))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torchx]\nsome = some_scheduler\n")
    sys.path.insert(0, str(Path("plugins").resolve()))


def journal(size: int) -> None:
    """Write a journal with ``size`` submissions."""
    folder = Path(os.environ["TORCHX_HOME"]) / "journal"
    folder.mkdir(parents=True, mode=0o700)
    for number in range(size):
        text = f'"name": "train", "handle": "some://torchx/app{number}"'
        path = folder / f"{number:020d}-app{number}-{number:08x}.json"
        path.touch(0o600)
        path.write_text(f'{{"version": 1, "time": "2026-01-01T00:00:00+00:00", {text}}}')


def lint(size: int) -> Callable[[], object]:
    return command("lint", components(size))


def component(size: int) -> Callable[[], object]:
    return command("run", "--dryrun", "-s", "local_cwd", f"{components(size)}:train1")


def dryrun_local(size: int) -> Callable[[], object]:
    return command("run", "--dryrun", "-s", "local_cwd", document(size, "json"))


def dryrun_kubernetes(size: int) -> Callable[[], object]:
    return command("run", "--dryrun", "-s", "kubernetes", document(size, "json"))


def yaml_read(size: int) -> Callable[[], object]:
    from torchx_specs.formats import serialize

    path = document(size, "yaml")
    return lambda: serialize.load(path)


def yaml_written(size: int) -> Callable[[], object]:
    from torchx_specs.formats import serialize

    app = serialize.load(document(size, "json"))
    return lambda: serialize.to_yaml(app)


def list_all(size: int) -> Callable[[], object]:
    scheduler(size)
    return command("list", "-s", "some")


def list_ten(size: int) -> Callable[[], object]:
    scheduler(size)
    return command("list", "-s", "some", "-n", "10")


def list_mine(size: int) -> Callable[[], object]:
    scheduler(size)
    journal(size)
    return command("list", "-s", "some", "--mine")


def status(size: int) -> Callable[[], object]:
    from torchx_cli.output.status_text import status_text
    from torchx_specs import AppState, AppStatus, ReplicaStatus, RoleStatus

    role = RoleStatus("main", [])
    for number in range(size):
        reason = f"needs node {number}"
        role.replicas.append(ReplicaStatus(number, AppState.PENDING, "main", "h", reason=reason))
    app = AppStatus(AppState.PENDING, roles=[role])
    return lambda: status_text("some://torchx/app", app)


def history(size: int) -> Callable[[], object]:
    journal(size)
    return command("history", "-n", str(size))


def history_ten(size: int) -> Callable[[], object]:
    journal(size)
    return command("history", "-n", "10")


def config(size: int) -> Callable[[], object]:
    sections = (f"[component:c{number}]\nepochs = {number}\n" for number in range(size))
    Path(".torchxconfig").write_text("".join(sections))
    return command("config", "show")


def redaction(size: int) -> Callable[[], object]:
    from torchx_specs.redaction import masked_text

    text = "".join(f"API_TOKEN_{number}=abc --password x\n" for number in range(size))
    return lambda: masked_text(text)


def ignored_files(size: int) -> Callable[[], object]:
    from torchx_kit.workspace import workspace_files
    from torchx_specs import Workspace

    for folder in range(10):
        Path(f"files/{folder}").mkdir(parents=True)
    for number in range(size):
        Path(f"files/{number % 10}/{number}.txt").touch()
    Path("files/.torchxignore").write_text("".join(f"*.{number}\n" for number in range(10)))
    return lambda: workspace_files(Workspace({"files": ""}))


SERIES = {
    "lint": lint,
    "component": component,
    "dryrun-local": dryrun_local,
    "dryrun-kubernetes": dryrun_kubernetes,
    "yaml-read": yaml_read,
    "yaml-written": yaml_written,
    "list": list_all,
    "list-ten": list_ten,
    "list-mine": list_mine,
    "status": status,
    "history": history,
    "history-ten": history_ten,
    "config": config,
    "redaction": redaction,
    "ignored-files": ignored_files,
}

if __name__ == "__main__":
    work = SERIES[sys.argv[1]](int(sys.argv[2]))
    begun = time.process_time()
    work()
    print({"seconds": time.process_time() - begun})
