"""Tests of a job's record, as the job's script writes it and as schedulers read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.records import FirstFailure, JobRecord, ReplicaRecord
from torchx_kit.scripts.job_script import RUN_REPLICA
from torchx_kit.scripts.setup_script import render_setup
from torchx_specs.errors import RequestError


@pytest.fixture
def record(tmp_path: Path) -> JobRecord:
    record = JobRecord(LocalHost(), str(tmp_path / "job" / ".records" / "a"))
    Path(record.path).mkdir(parents=True)
    return record


def run_replica(
    record: JobRecord, function: str, restarts: int = 0, arguments: str = "", before: str = ""
) -> int:
    """Run replica 3 of role 1 as a job script does."""
    script = f"role_1() {{\n{function}\n}}\n{RUN_REPLICA}\n{before}\ntx_ending=\n"
    script += f'tx_run "$1" "$1/log" node7 1 3 {restarts} {arguments}\ncode=$?\n'
    script += 'echo "first: ${tx_first:-0}"; exit "$code"'
    done = subprocess.run(["bash", "-c", script, "bash", record.path], capture_output=True)
    Path(record.path, "stdout").write_bytes(done.stdout)
    return done.returncode


class TestRunReplica:
    def test_success_is_recorded(self, record: JobRecord) -> None:
        assert run_replica(record, 'echo "$@"; echo error >&2', arguments="'a b' c") == 0
        report = record.replica(1, 3)
        assert report is not None
        assert record.has_begun()
        assert not JobRecord(LocalHost(), f"{record.path}/other").has_begun()
        assert (report.restarts, report.node, report.exit_code) == (0, "node7", 0)
        assert report.ended is not None
        assert report.ended >= report.started
        assert record.text("log.out") == "a b c\n"
        assert record.text("log.err") == "error\n"
        assert record.first_failure() is None

    def test_first_failure_is_recorded(self, record: JobRecord) -> None:
        assert run_replica(record, "exec bash -c 'kill -9 $$'") == 137
        assert record.text("stdout") == "first: 1\n"
        assert record.first_failure() == FirstFailure(1, 3, "node7", -9)
        assert run_replica(record, "exit 4") == 4
        assert record.text("stdout") == "first: 0\n"
        assert record.first_failure() == FirstFailure(1, 3, "node7", -9)
        report = record.replica(1, 3)
        assert report is not None
        assert report.exit_code == 4

    def test_replica_of_an_earlier_attempt_reports_nothing(self, record: JobRecord) -> None:
        assert run_replica(record, "exit 0") == 0
        present = record.text("replica-1-3")
        assert run_replica(record, "exit 4", before="tx_is_over() { true; }") == 4
        assert record.text("replica-1-3") == present
        assert record.first_failure() is None

    def test_process_is_restarted_in_place(self, record: JobRecord) -> None:
        function = 'echo try; [ "$(grep -c try "$tx_log.out")" = 3 ] || exit 1'
        assert run_replica(record, function, restarts=5) == 0
        report = record.replica(1, 3)
        assert report is not None
        assert (report.restarts, report.exit_code) == (2, 0)

    def test_ending_job_restarts_no_process_and_records_no_failure(self, record: JobRecord) -> None:
        function = "kill -TERM $$; sleep 0.2; exit 1"
        script = f"{RUN_REPLICA}\ntrap 'tx_ending=1' TERM\ntx_ending=\n"
        script += f'role_1() {{\n{function}\n}}\ntx_run "$1" "$1/log" node7 1 3 5'
        done = subprocess.run(["bash", "-c", script, "bash", record.path])
        assert done.returncode == 1
        report = record.replica(1, 3)
        assert report is not None
        assert report.restarts == 0
        assert record.first_failure() is None

    def test_files_are_replaced_as_a_whole(self, record: JobRecord) -> None:
        run_replica(record, "true")
        with open(record.replica_path(1, 3)) as reader:
            run_replica(record, "exit 5")
            assert reader.read().endswith(" 0\n")  # the reader has opened the old file
        assert record.text("replica-1-3").endswith(" 5\n")
        assert not [name for name in record.host.list(record.path) if name.endswith(".new")]

    def test_end_is_recorded_without_mv(self, record: JobRecord) -> None:
        assert run_replica(record, "exit 6", before="mv() { return 1; }\n") == 6
        report = record.replica(1, 3)
        assert report is not None
        assert report.exit_code == 6


class TestSetup:
    def run_setup(self, record: JobRecord, *lines: str, function: str = 'echo "X=$X"') -> int:
        return run_replica(record, function, before=render_setup(lines))

    def test_lines_change_the_shell_of_the_program(self, record: JobRecord) -> None:
        lines = ["if false; then echo a; fi", "cat << END", "  b", "END", "export X=1"]
        assert self.run_setup(record, *lines, function='false; exec bash -c "echo X=$X"') == 0
        assert record.text("log.out") == "  b\nX=1\n"
        assert record.describe_end(1, 3, 0) == ""

    @pytest.mark.parametrize(
        ("line", "code", "shown"),
        [
            ("ls /no/such/folder", 2, "ls /no/such/folder"),
            ("exit 7", 7, "exit 7"),
            ("exit 0", 1, "exit 0"),
            ("false | true && false", 1, "false"),
        ],
    )
    def test_a_line_that_fails_ends_the_replica(
        self, record: JobRecord, line: str, code: int, shown: str
    ) -> None:
        assert self.run_setup(record, line, "echo next") == code
        message = f"setup failed with exit code {code} at: {shown}"
        assert record.describe_end(1, 3, code) == message
        assert record.text("log.out") == ""
        assert message in record.text("log.err")
        assert self.run_setup(record, "true") == 0
        assert record.describe_end(1, 3, code) == f"exit code {code}"  # of the next attempt

    @pytest.mark.parametrize("signal", ["TERM", "USR2"])
    def test_a_signal_is_no_failure_of_a_line(self, record: JobRecord, signal: str) -> None:
        code = self.run_setup(record, f"kill -{signal} $BASHPID", "sleep 60")
        assert code == {"TERM": 143, "USR2": 140}[signal]
        assert "setup" not in record.describe_end(1, 3, 1)
        assert record.text("log.err") == ""

    def test_lines_that_a_script_cannot_have_are_refused(self) -> None:
        with pytest.raises(RequestError, match=r"option setup: .* a NUL or a carriage return"):
            render_setup(["true\r"])
        assert render_setup([]) == ""


def test_record_is_removed_with_the_directory_of_records(record: JobRecord) -> None:
    folder = Path(record.path)
    other = JobRecord(LocalHost(), str(folder.parent / "b"))
    Path(other.path).mkdir()
    record.remove()
    assert not folder.exists()
    assert folder.parent.exists()
    other.remove()
    assert not folder.parent.exists()
    other.remove()


@pytest.mark.parametrize("text", ["", "0", "0 node1", "0 node1 5"])
def test_incomplete_file_counts_as_missing(record: JobRecord, text: str) -> None:
    Path(record.replica_path(0, 0)).write_text(text)
    assert record.replica(0, 0) is None
    Path(record.replica_path(0, 0)).write_text("0 node1 5\n")
    assert record.replica(0, 0) == ReplicaRecord(0, "node1", 5)


def test_failure_in_words() -> None:
    assert FirstFailure(0, 2, "n1", 3).describe(["main"]) == "main/2 on n1: exit code 3"
    assert FirstFailure(1, 0, "n1", -9).describe(["main"]) == (
        "1/0 on n1: killed by signal 9 (SIGKILL)"
    )
