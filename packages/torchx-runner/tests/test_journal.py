"""Tests of the journal of submissions, and of reading the commit that is checked out."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_runner import Runner, get_runner
from torchx_runner.submissions import journal
from torchx_runner.submissions.all_schedulers import ListedApps
from torchx_runner.submissions.journal import checked_out_commit, find_submission, submissions
from torchx_runner.submissions.lookup import AppNotFoundError, find_app
from torchx_specs import AppDef, Role, Workspace
from torchx_specs.formats import serialize


@pytest.fixture
def runner(runner: Runner) -> Runner:
    runner.keeps_journal = True
    return runner


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".torchx" / "journal"


def only(found: Any) -> Any:
    [item] = found
    return item


def test_a_submission_is_recorded_with_its_input(
    runner: Runner, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchx", "run", "--env", "HF_TOKEN=hf_1", "x"])
    app.roles[0].env["A"] = "1"
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    handle = runner.run(app, "fake", {"queue": "q"}, Workspace({"/src": ""}), "parent")
    found = only(submissions())
    assert (found.handle, found.name) == (handle, "job")
    assert (found.scheduler, found.app_id) == ("fake", "app1")
    assert before <= found.time <= datetime.now(timezone.utc) + timedelta(seconds=1)
    assert found.command == ("torchx", "run", "--env", "HF_TOKEN=***", "x")
    assert found.folder == os.getcwd()
    assert found.cfg == {"queue": "q"}
    assert (found.workspace, found.workspace_required) == ({"/src": ""}, True)
    assert found.parent_run_id == "parent"
    # the app as the user made it, without the variables that the runner adds
    assert serialize.from_dict(found.app) == app


def test_the_working_directory_is_recorded_as_an_optional_workspace(
    runner: Runner, app: AppDef
) -> None:
    runner.run(app, "fake", workspace=WorkingDirectory.now())
    found = only(submissions())
    assert (found.workspace, found.workspace_required) == ({os.getcwd(): ""}, False)


def test_only_the_user_can_read_the_journal(runner: Runner, app: AppDef, folder: Path) -> None:
    runner.run(app, "fake")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_a_dry_run_is_not_recorded(runner: Runner, app: AppDef, folder: Path) -> None:
    runner.dryrun(app, "fake")
    assert not folder.exists()


def test_a_runner_of_get_runner_keeps_the_journal_and_others_do_not(
    app: AppDef, fake_scheduler_class: Any, folder: Path
) -> None:
    with get_runner() as installed:
        assert installed.keeps_journal
    with Runner("x", {"fake": fake_scheduler_class}) as own:
        own.run(app, "fake")
    assert not folder.exists()


def test_the_variable_turns_the_journal_off(
    runner: Runner, app: AppDef, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_JOURNAL", "0")
    runner.run(app, "fake")
    assert not folder.exists()


def test_torchx_home_has_the_journal(
    runner: Runner, app: AppDef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "th"))
    runner.run(app, "fake")
    assert len(list((tmp_path / "th" / "journal").iterdir())) == 1


def test_the_newest_submission_comes_first(runner: Runner, app: AppDef) -> None:
    handles = [runner.run(app, "fake") for _ in range(3)]
    assert [found.handle for found in submissions()] == handles[::-1]


def test_the_journal_is_bounded(
    runner: Runner, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_SUBMISSIONS", 3)
    monkeypatch.setattr(journal, "_WRITES", 2)
    monkeypatch.setattr(journal, "_written", itertools.count())
    handles = [runner.run(app, "fake") for _ in range(2)]
    assert journal.missing_submissions() == ""
    handles += [runner.run(app, "fake") for _ in range(4)]
    assert [found.handle for found in submissions()] == handles[:1:-1]
    assert "keeps the newest 3 submissions" in journal.missing_submissions()
    with pytest.raises(AppNotFoundError, match="has 4 submissions of this user; the journal keeps"):
        find_app("@5", lambda scheduler: ListedApps())


def test_a_search_for_an_app_reads_only_its_own_entries(
    runner: Runner, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [runner.run(app, "fake") for _ in range(3)]
    read, paths = journal._read, []
    monkeypatch.setattr(journal, "_read", lambda path: paths.append(path) or read(path))
    found = journal.submission_finder()(handles[1])
    assert (found.handle if found else "", len(paths)) == (handles[1], 1)
    assert [found.handle for found in submissions(2)] == handles[:0:-1]
    assert len(paths) == 3


def test_a_large_app_is_left_out(runner: Runner, app: AppDef) -> None:
    app.roles[0].args = ["x" * journal.MAX_BYTES]
    runner.run(app, "fake")
    found = only(submissions())
    assert (found.app, found.app_missing) == (None, "it needs more than 128 KB")


def test_an_app_that_is_no_document_is_left_out_with_the_reason(
    runner: Runner, app: AppDef
) -> None:
    app.roles[0].metadata["call"] = print
    runner.run(app, "fake")
    found = only(submissions())
    assert found.app is None
    assert "call" in found.app_missing


def test_find_submission_ignores_the_session(runner: Runner, app: AppDef) -> None:
    handles = [runner.run(app, "fake") for _ in range(2)]
    found = find_submission("fake://another/app1")
    assert found is not None
    assert found.handle == handles[0]
    assert find_submission("other://test/app1") is None
    assert find_submission("fake://test/app") is None


@pytest.mark.parametrize("app_id", ["ns:train/1", "a-b-c", "ä*?", "x" * 300])
def test_unusual_ids_are_found(app_id: str, app: AppDef, runner: Runner) -> None:
    info = runner.dryrun(app, "fake")
    handle = f"fake://test/{app_id}"
    journal.JournalEntry(journal.RunInput(app, {}), info).write(handle)
    found = find_submission(handle)
    assert found is not None
    assert found.handle == handle


def test_threads_record_every_submission(runner: Runner, app: AppDef) -> None:
    info = runner.dryrun(app, "fake")

    def record(number: int) -> None:
        journal.JournalEntry(journal.RunInput(app, {}), info).write(f"fake://t/{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(40)))
    assert {found.app_id for found in submissions()} == {str(n) for n in range(40)}


# -- entries that cannot be written or read


def test_a_full_disk_is_a_warning(
    runner: Runner,
    app: AppDef,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    runner.run(app, "fake")
    monkeypatch.setattr(journal, "write_atomically", full)
    handle = runner.run(app, "fake")
    assert handle == "fake://test/app2"
    assert f"no entry for {handle}: No space left on device" in caplog.text
    monkeypatch.undo()


def test_a_full_disk_leaves_no_part_of_an_entry(runner: Runner, app: AppDef, folder: Path) -> None:
    code = """
import resource, signal, sys
from torchx_runner.submissions.journal import JournalEntry, RunInput
from torchx_specs import AppDef, AppDryRunInfo
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
JournalEntry(RunInput(AppDef("x"), {}), AppDryRunInfo(None, repr)).write("fake://s/x")
"""
    environment = {k: v for k, v in os.environ.items() if k != "TORCHX_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0
    assert "File too large" in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("blocked", ["home", "journal"])
def test_a_file_in_place_of_the_folder_is_a_warning(
    blocked: str, runner: Runner, app: AppDef, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = home / ".torchx"
    if blocked == "journal":
        place.mkdir()
        place = place / "journal"
    place.write_text("")
    assert runner.run(app, "fake") == "fake://test/app1"
    assert "no entry for fake://test/app1" in caplog.text
    assert list(submissions()) == []
    assert find_submission("fake://test/app1") is None


def test_damaged_entries_are_left_out(runner: Runner, app: AppDef, folder: Path) -> None:
    handle = runner.run(app, "fake")
    entry = json.loads(only(folder.iterdir()).read_bytes())
    damaged = [
        b"",
        b"{",
        b"[1]",
        b"\xff\xfe",
        b"[" * 50_000,
        json.dumps({**entry, "version": 2}).encode(),
        json.dumps({**entry, "handle": 7}).encode(),
        json.dumps({**entry, "handle": "no handle"}).encode(),
        json.dumps({**entry, "time": "yesterday"}).encode(),
        json.dumps(entry).encode()[:-20],
    ]
    for number, data in enumerate(damaged):
        (folder / f"{9 * 10**18 + number:020d}-app1-00000000.json").write_bytes(data)
    os.mkfifo(folder / f"{9 * 10**18 + 50:020d}-app1-00000000.json")
    (folder / f"{9 * 10**18 + 51:020d}-app1-00000000.json").mkdir()
    (folder / "notes.txt").write_text("mine")
    assert only(submissions()).handle == handle
    found = find_submission(handle)
    assert found is not None
    odd = {**entry, "command": 1, "cfg": [], "app": "x", "workspace": 3, "git_commit": {}}
    (folder / f"{10**19:020d}-app1-00000000.json").write_text(json.dumps(odd))
    first = next(submissions())
    assert (first.command, first.cfg, first.app, first.git_commit) == ((), {}, None, None)


def test_an_entry_that_another_user_can_change_is_left_out(
    runner: Runner, app: AppDef, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = runner.run(app, "fake")
    only(folder.iterdir()).chmod(0o666)
    assert find_submission(handle) is None
    monkeypatch.setenv("TORCHX_TRUSTED_FOLDERS", str(folder))
    assert only(submissions()).handle == handle


# -- the git commit of a workspace


def test_the_commit_of_a_repository_and_of_a_worktree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str, cwd: Path = tmp_path) -> str:
        return subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e@x", *words],
            cwd=cwd,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))  # which may be in a repository
    repository = tmp_path / "repository"
    assert checked_out_commit("/") is None
    git("init", "-q", str(repository))
    assert checked_out_commit(str(repository)) is None
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=repository)
    commit = git("rev-parse", "HEAD", cwd=repository)
    (repository / "sub").mkdir()
    assert checked_out_commit(str(repository / "sub")) == commit
    git("worktree", "add", "-q", "../tree", "-b", "other", cwd=repository)
    assert checked_out_commit(str(tmp_path / "tree")) == commit
    git("pack-refs", "--all", cwd=repository)
    assert checked_out_commit(str(repository)) == commit
    assert checked_out_commit(str(tmp_path / "tree")) == commit
    git("checkout", "-q", "--detach", cwd=repository)
    assert checked_out_commit(str(repository)) == commit
    git("init", "-q", str(tmp_path / "empty"))
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))  # as in a hook of Git
    assert checked_out_commit(str(tmp_path / "empty")) is None
    (repository / ".git" / "HEAD").write_bytes(b"\xff")
    assert checked_out_commit(str(repository)) is None


def test_describe_has_the_programs_of_the_journal_if_the_scheduler_stores_none(
    runner: Runner, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = runner.run(app, "fake")
    scheduler = runner.scheduler("fake")
    found = scheduler.describe("app1")
    assert found is not None
    found.roles = [Role("trainer", image="")]
    monkeypatch.setattr(scheduler, "describe", lambda app_id: found)
    runner._apps.clear()  # as in another process
    described = runner.describe(handle)
    assert described is not None
    assert described.roles == app.roles
    runner.keeps_journal = False
    described = runner.describe(handle)
    assert described is not None
    assert described.roles == found.roles
