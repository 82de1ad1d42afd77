"""Tests of apps with the option ``requeue``, with doubles of the docker library's client."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from torchx_sched_docker.labels import LABEL_PREFIX_ARGS, LABEL_REQUEUE, LABEL_TIME_LIMIT
from torchx_sched_docker.records import add_report, open_record, read_record, record_cancel
from torchx_sched_docker.request import DockerJob
from torchx_sched_docker.scheduler import DockerScheduler, create_scheduler
from torchx_sched_docker.states import replica_state, stopped, summary_state
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.status import ReplicaStatus

PENDING, SUCCEEDED, FAILED = AppState.PENDING, AppState.SUCCEEDED, AppState.FAILED


def request(*roles: Role, **cfg: Any) -> DockerJob:
    roles = roles or (Role("main", "busybox:1", entrypoint="true", max_retries=2),)
    made: DockerJob = create_scheduler("test").submit_dryrun(AppDef("app", [*roles]), cfg).request
    return made


def test_a_container_starts_its_program_again() -> None:
    made = request(requeue=True, time="1h", setup=["cd /srv"], max_node_failures=5)
    (container,) = made.containers
    labels: Any = container.kwargs["labels"]
    prefix, command = container.command[:12], container.command[12:]
    assert command == ["true"]
    assert labels[LABEL_PREFIX_ARGS] == "12"
    assert labels[LABEL_REQUEUE] == "2"
    assert LABEL_TIME_LIMIT not in labels
    assert prefix[:2] == ["sh", "-c"]
    assert prefix[3:10] == ["torchx", "0", "0", "2", "done", "sh", "-c"]
    assert "tx_seconds=3600\n" in prefix[2]
    assert container.kwargs["restart_policy"] == {"Name": "on-failure", "MaximumRetryCount": 6}
    environment: Any = container.kwargs["environment"]
    assert environment["TORCHX_STOP_GRACE"] == "SIGTERM=10"
    assert "TORCHX_RESUME_DIR" not in environment


def test_a_job_without_attempts_has_none_of_their_parameters() -> None:
    for container in request().containers:
        assert container.command == ["true"]
        assert LABEL_REQUEUE not in str(container)
        assert {"stop_signal"} & container.kwargs.keys() == set()
        assert container.kwargs["mounts"] == []


def test_the_resume_folder_is_mounted_at_its_own_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = request(resume_dir="runs/${app_id}")
    path = str(tmp_path / "runs" / made.app_id)
    assert made.resume_dir == path
    mounts: Any = made.containers[0].kwargs["mounts"]
    assert [mount["Type"] for mount in mounts] == ["volume", "bind"]
    assert mounts[1] == {"Type": "bind", "Source": path, "Target": path, "ReadOnly": False}
    environment: Any = made.containers[0].kwargs["environment"]
    assert environment["TORCHX_RESUME_DIR"] == path
    assert environment["TORCHX_RESUME_OWNER"] == str(os.geteuid())
    assert not Path(path).exists()


def test_roles_that_end_the_app_decide_by_the_script() -> None:
    server = Role("server", "busybox:1", entrypoint="true", num_replicas=2)
    client = Role("client", "busybox:1", entrypoint="true", metadata={ENDS_APP_KEY: True})
    made = request(server, client, requeue=True)
    assert [container.command[7] for container in made.containers] == ["spare", "spare", "done"]
    assert "tx_have 1 done" in made.containers[0].command[2]
    assert "ends-app" not in str(made.containers)


def test_options_are_checked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError) as caught:
        request(resume_dir=str(tmp_path / "file"), max_total_time="soon")
    assert len(caught.value.problems) == 2
    with pytest.raises(RequestError, match="max_node_failures needs the option requeue"):
        request(max_node_failures=1)


def test_a_folder_of_another_kind_is_refused_at_the_submission(tmp_path: Path) -> None:
    info = create_scheduler("test").submit_dryrun(
        AppDef("app", [Role("main", "busybox:1", entrypoint="true")]),
        {"resume_dir": str(tmp_path / "file" / "runs")},
    )
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="option resume_dir: cannot create"):
        DockerScheduler("test", SimpleNamespace()).schedule(info)


def test_a_container_that_starts_again_has_not_ended() -> None:
    labels = {LABEL_REQUEUE: "0"}
    codes = {0: SUCCEEDED, 127: FAILED, 137: PENDING, 143: PENDING, 255: PENDING}
    for code, state in codes.items():
        assert replica_state("exited", code, "x", labels) == state
    assert replica_state("exited", 143, "x_cancelled", labels) == AppState.CANCELLED
    assert replica_state("exited", 143, "x") == FAILED
    summaries = [
        {"State": "exited", "Status": f"Exited ({code}) 1 s ago", "Labels": labels, "Names": ["/x"]}
        for code in codes
    ]
    summaries.append({"State": "restarting", "Status": "", "Labels": labels, "Names": ["/x"]})
    assert [summary_state(each) for each in summaries] == [*codes.values(), PENDING]
    assert stopped(summaries) == summaries[2:5]


class VolumeDouble:
    """The volume of an app; an engine refuses requests with a status."""

    def __init__(self, files: dict[str, str] | None = None, status: int = 0) -> None:
        self.files = files or {}
        self.status = status
        self.written: list[tuple[str, tarfile.TarInfo]] = []
        self.api = self

    def _check(self) -> None:
        if self.status:
            raise docker.errors.APIError("no", SimpleNamespace(status_code=self.status), "no")

    def get_archive(self, container: str, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        self._check()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            folder = tarfile.TarInfo("torchx-record")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            for name, text in self.files.items():
                member = tarfile.TarInfo(f"torchx-record/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        data = buffer.getvalue()
        return iter([data[:700], data[700:]]), {}

    def put_archive(self, container: str, path: str, data: bytes) -> None:
        self._check()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            self.written += [(path, member) for member in archive]


def test_record_is_written_by_all_users_and_has_the_cancellation() -> None:
    volume: Any = VolumeDouble()
    open_record(volume, "c")
    record_cancel(volume, "c")
    (root, folder), (path, mark) = volume.written
    assert (root, folder.name, stat.S_IMODE(folder.mode)) == ("/", "torchx-record", 0o777)
    assert folder.isdir()
    assert (path, mark.name) == ("/torchx-record", "cancelled")


def test_record_has_the_attempts() -> None:
    files = {
        "attempts": "start 0 100 - \nend requested 110 4\nstart 1 111 4 \n",
        "began-1-0-0": "",
        "replica-0-0": "1 host 111\n",
    }
    record = read_record(VolumeDouble(files), "c")  # type: ignore[arg-type]
    assert [attempt.reason for attempt in record.attempts] == ["requested", None]
    assert record.text("began-1-0-0") == ""  # not a report
    statuses = record.attempt_statuses(AppState.CANCELLED)
    assert [attempt.reason for attempt in statuses] == ["requested", "cancelled"]


@pytest.mark.parametrize("status", [404, 409])
def test_record_of_a_deleted_container_is_empty(status: int) -> None:
    volume: Any = VolumeDouble({"attempts": "start 0 1 - \n"}, status)
    assert read_record(volume, "c").attempts == []
    record_cancel(volume, "c")


def test_errors_of_the_engine_are_errors() -> None:
    volume: Any = VolumeDouble(status=500)
    for function in (read_record, record_cancel, open_record):
        with pytest.raises(BackendError):
            function(volume, "c")


@pytest.mark.parametrize(
    ("container", "report", "failed", "state", "exit_code", "reason"),
    [
        (SUCCEEDED, "1 h 5 9 0", "", SUCCEEDED, 0, ""),
        (SUCCEEDED, "1 h 5 9 3", "", FAILED, 3, "exit code 3"),
        (SUCCEEDED, "1 h 5 9 137", "", FAILED, 137, "killed by signal 9 (SIGKILL)"),
        (SUCCEEDED, "1 h 5", "0 0 h 1\n", FAILED, None, ""),
        (SUCCEEDED, "", "0 0 h 126\n", FAILED, None, ""),
        (SUCCEEDED, "", "", SUCCEEDED, 0, ""),
        (PENDING, "1 h 5 9 75", "", PENDING, None, "exit code 143"),
        (AppState.CANCELLED, "1 h 5 9 143", "", AppState.CANCELLED, 143, "exit code 143"),
    ],
)
def test_status_of_a_replica_is_that_of_its_program(
    container: AppState,
    report: str,
    failed: str,
    state: AppState,
    exit_code: int | None,
    reason: str,
) -> None:
    files = {"replica-0-0": f"{report}\n", "failed": failed}
    code = 0 if container == SUCCEEDED else 143
    text = f"exit code {code}" if code else ""
    replica = ReplicaStatus(0, container, "main", hostname="h", reason=text, exit_code=code)
    add_report(replica, read_record(VolumeDouble(files), "c"), 0)  # type: ignore[arg-type]
    assert (replica.state, replica.exit_code, replica.reason) == (state, exit_code, reason)
    assert replica.restarts == bool(report)
