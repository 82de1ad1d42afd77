"""Tests of one attempt in one process: what it reads, refuses, commits and notes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx_resilience import (
    Attempt,
    CheckpointError,
    ResilienceError,
    ResumeDirError,
    SupersededError,
    attempt,
)
from torchx_resilience.folder import ResumeFolder

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the variables of schedulers and launchers; restore the handlers of signals."""
    for name in list(os.environ):
        if "TORCHX" in name or name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
            monkeypatch.delenv(name)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "resume"


def save(run: Attempt, step: int, text: str = "") -> None:
    (run.checkpoint_path(step) / "model").write_text(text or str(step))
    run.commit(step)


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


def test_first_attempt_has_nothing_to_resume_from(folder: Path) -> None:
    run = attempt(folder)
    assert (run.number, run.reason, run.rank, run.world_size) == (0, None, 0, 1)
    assert (run.resume_dir, run.resume_step, run.resume_path) == (folder, None, None)
    assert run.time_left() is None
    assert list(run.steps(0, 3)) == [0, 1, 2]


def test_variables_of_the_scheduler_win(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_RESUME_DIR", str(folder))
    monkeypatch.setenv("TORCHX_ATTEMPT", "4")
    monkeypatch.setenv("TORCHX_RESTART_REASON", "preempted")
    run = attempt("other")
    assert (run.number, run.reason, run.resume_dir) == (4, "preempted", folder)


def test_next_attempt_resumes_after_the_newest_committed_step(folder: Path) -> None:
    run = attempt(folder)
    save(run, 3)
    save(run, 10, "ten")
    (run.checkpoint_path(12) / "model").write_text("not committed")
    run = attempt(folder)
    assert (run.number, run.resume_step) == (1, 10)
    assert run.resume_path is not None
    assert (run.resume_path / "model").read_text() == "ten"
    assert list(run.steps(0, 13)) == [11, 12]
    assert os.listdir(folder / "attempts") == ["1.0"]
    assert os.listdir(folder / "attempts" / "1.0") == []


def test_restart_by_torchrun_is_a_newer_attempt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_ATTEMPT", "2")
    old = attempt(folder)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert attempt(folder).number == 2
    with pytest.raises(SupersededError):
        old.checkpoint_path(0)


@pytest.mark.parametrize(("keep", "kept"), [(1, ["step-4"]), (3, ["step-2", "step-3", "step-4"])])
def test_newest_checkpoints_are_kept(folder: Path, keep: int, kept: list[str]) -> None:
    run = attempt(folder, keep=keep)
    for step in range(5):
        save(run, step)
    assert steps(folder) == kept


def test_keep_of_zero_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="keep=0 is not valid"):
        attempt(folder, keep=0)


def test_folders_and_files_are_private(folder: Path) -> None:
    run = attempt(folder)
    path = run.checkpoint_path(1)
    for one in (folder, folder / "attempts", path.parent, path):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700


def test_file_with_the_run_is_private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "slurm://torchx/17")
    attempt(folder)
    assert (folder / "run").read_text() == "slurm://torchx/17"
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o600


@pytest.mark.parametrize("step", [3, 2, -1])
def test_step_that_is_not_newer_is_refused(folder: Path, step: int) -> None:
    run = attempt(folder)
    save(run, 3)
    with pytest.raises(CheckpointError, match="the committed step 3"):
        run.checkpoint_path(step)


def test_commit_without_a_checkpoint_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"step 1 in .*step-1 cannot be committed"):
        attempt(folder).commit(1)


def test_requeue_exits_with_75(folder: Path) -> None:
    with pytest.raises(SystemExit) as exit_info:
        attempt(folder).requeue()
    assert exit_info.value.code == 75


# Older attempts


def test_attempt_that_is_not_the_newest_cannot_commit(folder: Path) -> None:
    old = attempt(folder)
    save(old, 1)
    old.checkpoint_path(2)
    new = attempt(folder)
    for call in (old.commit, old.checkpoint_path):
        with pytest.raises(SupersededError, match=r"the newer attempt 1\.0 uses"):
            call(2)
    save(new, 2)
    assert steps(folder) == ["step-1", "step-2"]


def test_error_of_an_old_attempt_ends_the_process_with_1(folder: Path) -> None:
    code = (
        "import sys, torchx_resilience\n"
        "runs = [torchx_resilience.attempt(sys.argv[1]) for _ in range(2)]\n"
        "try: runs[0].commit(1)\n"
        "except Exception: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "torchx_resilience: attempt 0.0 ends without a checkpoint, because the newer attempt 1.0 "
        f"uses {folder}\n"
    )


@pytest.mark.parametrize("delayed", ["create", "commit"])
def test_old_attempt_cannot_commit_between_its_check_and_its_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch, delayed: str
) -> None:
    """Begin the new attempt after the old one has checked that it is the newest."""
    old = attempt(folder)
    save(old, 1)
    if delayed == "commit":
        (old.checkpoint_path(2) / "model").write_text("old")
    check = ResumeFolder.check_newest
    calls = []

    def check_before_the_new_attempt(self: ResumeFolder) -> None:
        check(self)
        calls.append(self)
        # The second check of commit() is the one before the rename.
        if self is old._folder and len(calls) == (1 if delayed == "create" else 2):
            attempt(folder)

    monkeypatch.setattr(ResumeFolder, "check_newest", check_before_the_new_attempt)
    with pytest.raises(SupersededError):
        old.checkpoint_path(2) if delayed == "create" else old.commit(2)
    assert steps(folder) == ["step-1"]
    assert os.listdir(folder / "attempts") == ["1.0"]


def test_attempt_that_starts_late_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_ATTEMPT", "5")
    run = attempt(folder)
    monkeypatch.setenv("TORCHX_ATTEMPT", "4")
    with pytest.raises(SupersededError, match=r"attempt 4\.0 ends"):
        attempt(folder)
    save(run, 1)
    assert os.listdir(folder / "attempts") == ["5.0"]


# Folders that are refused


def test_missing_folder_is_an_error() -> None:
    with pytest.raises(ResumeDirError, match="TORCHX_RESUME_DIR is not set"):
        attempt()


def test_folder_of_another_run_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "slurm://torchx/17")
    save(attempt(folder), 1)
    monkeypatch.setenv("TORCHX_JOB_ID", "slurm://torchx/18")
    with pytest.raises(
        ResumeDirError, match=r"belongs to the run slurm://torchx/17, but this is .*/18; choose"
    ):
        attempt(folder)
    assert os.listdir(folder / "attempts") == ["0.0"]
    (folder / "run").unlink()
    assert attempt(folder).resume_step == 1


def test_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    owner = folder.stat().st_uid
    if owner == 0:
        owner = 4711
        os.chown(folder, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    with pytest.raises(ResumeDirError, match=f"belongs to user {owner}, but .* as user 4712"):
        attempt(folder)
    monkeypatch.setenv("TORCHX_RESUME_OWNER", str(owner))  # who has submitted a container
    assert attempt(folder).number == 0


def test_folder_that_others_can_write_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(ResumeDirError, match=r"\(mode 0770\); run: chmod 700"):
        attempt(folder)


def test_folder_that_is_a_file_is_refused(folder: Path) -> None:
    folder.touch()
    with pytest.raises(ResumeDirError, match="cannot be used: File exists"):
        attempt(folder)


def fail(code: int) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


def test_read_only_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(attempt(folder), 1)
    monkeypatch.setattr(os, "mkdir", fail(errno.EROFS))
    with pytest.raises(ResumeDirError, match="cannot be written: Read-only file system"):
        attempt(folder)
    assert steps(folder) == ["step-1"]


@pytest.mark.parametrize("function", ["mkdir", "fsync", "rename"])
def test_full_disk_loses_no_committed_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    run = attempt(folder)
    save(run, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail(errno.ENOSPC))
        with pytest.raises(CheckpointError, match=r"step 2.*No space left on device"):
            save(run, 2)
    assert attempt(folder).resume_step == 1


# Variables


@pytest.mark.parametrize("value", ["-1", "one"])
def test_invalid_attempt_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TORCHX_ATTEMPT", value)
    with pytest.raises(ResilienceError, match=f"TORCHX_ATTEMPT='{value}' is not valid"):
        attempt(folder)


def test_ranks_without_a_number_of_the_attempt_are_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_REPLICA_ID", "1")
    monkeypatch.setenv("TORCHX_NUM_REPLICAS", "2")
    with pytest.raises(ResilienceError, match="TORCHX_ATTEMPT is not set, so the 2 ranks"):
        attempt(folder)


def test_rank_that_waits_in_vain_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("TORCHX_ATTEMPT", "0")):
        monkeypatch.setenv(name, value)
    run = attempt(folder, timeout=0.1)
    run.checkpoint_path(1)
    with pytest.raises(CheckpointError, match=r"not all of the 2 ranks .* within 0\.1 s"):
        run.commit(1)


# Signals


def test_signal_is_noted_and_an_earlier_handler_is_called(folder: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    run = attempt(folder)
    assert not run.should_stop(1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert run.should_stop(2)
    assert seen == [signal.SIGTERM]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_announce_a_stop(folder: Path, number: signal.Signals) -> None:
    run = attempt(folder)
    os.kill(os.getpid(), number)
    assert run.should_stop(1)


def test_user_signal_that_the_script_handles_is_its_own(folder: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    run = attempt(folder)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not run.should_stop(1)
    assert seen == [signal.SIGUSR1]


def test_handlers_are_restored_after_the_last_step(folder: Path) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    run = attempt(folder)
    assert [signal.getsignal(number) for number in SIGNALS] != before
    list(run.steps(0, 2))
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_time_left_belongs_to_the_signal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_STOP_GRACE", "SIGTERM=30, SIGUSR1=120")
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    run = attempt(folder)
    os.kill(os.getpid(), signal.SIGUSR2)
    assert run.time_left() is None
    os.kill(os.getpid(), signal.SIGUSR1)
    assert run.time_left() == 120.0
    monkeypatch.setattr("time.monotonic", lambda: 1050.0)
    assert run.time_left() == 70.0
    os.kill(os.getpid(), signal.SIGTERM)
    assert run.time_left() == 30.0


def test_invalid_grace_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_STOP_GRACE", "SIGTERM=soon")
    with pytest.raises(ResilienceError, match="TORCHX_STOP_GRACE='SIGTERM=soon' is not valid"):
        attempt(folder)


FORKED = """
import os, signal, sys, torchx_resilience
run = torchx_resilience.attempt(sys.argv[1])
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run.should_stop(1))
"""


def test_forked_child_ends_on_sigterm_only(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{-signal.SIGTERM} False\n"


def test_attempt_in_another_thread_is_an_error(folder: Path) -> None:
    errors: list[Exception] = []

    def call() -> None:
        try:
            attempt(folder)
        except ResilienceError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "in another thread than the main thread" in str(errors[0])


def test_import_needs_no_large_module() -> None:
    code = (
        "import sys; before = set(sys.modules); import torchx_resilience; "
        "print(*sorted(name for name in set(sys.modules) - before if 'torchx' not in name))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["__future__"]
