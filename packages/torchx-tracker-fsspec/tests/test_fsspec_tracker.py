from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from patience import wait_for
from torchx_specs.trackers.api import (
    TrackerArtifact,
    TrackerBackendError,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker_fsspec import FsspecTracker, create
from torchx_tracker_fsspec.names import encode

PEER = json.loads(Path(__file__).with_name("peer_layout.json").read_text("utf-8"))
RUN = "local_cwd://session/job-1"

ODD = [
    "a b",
    "é/ü",
    "../../escape",
    "/abs",
    ".",
    "..",
    "日本語" * 40,
    "x" * 4000,
    "\udcff",
    "a\nb",
    "$HOME",
    "%41",
]


class FoldersFileSystem(LocalFileSystem):
    """The local disk with another protocol name, which the tracker treats like SFTP or HDFS."""

    protocol = ("folders",)


class ObjectFileSystem(MemoryFileSystem):
    """An object store in memory, new for each test."""

    protocol = ("s3",)

    def __init__(self, number: int) -> None:
        super().__init__(use_listings_cache=False)
        self.store: dict[str, object] = {}
        self.pseudo_dirs = [""]

    def _open(self, path: str, mode: str = "rb", *args: object, **kwargs: object) -> object:
        assert "a" not in mode
        return super()._open(path, mode, *args, **kwargs)


@pytest.fixture(params=["local", "folders", "objects"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> FsspecTracker:
    if request.param == "local":
        return create(f"protocol=file;root_path={tmp_path}")
    if request.param == "folders":
        return FsspecTracker(FoldersFileSystem(), str(tmp_path))
    fs = ObjectFileSystem(id(request))
    fs.makedirs("/bucket")
    return FsspecTracker(fs, "bucket/prefix")


@pytest.fixture
def local(tmp_path: Path) -> FsspecTracker:
    return create(f"protocol=file;root_path={tmp_path}")


def test_artifact_path_may_be_a_path_object(local: FsspecTracker) -> None:
    local.add_artifact("run", "model", Path("/m.pt"))  # type: ignore[arg-type]
    assert local.artifacts("run")["model"].path == "/m.pt"


def test_unknown_filter_is_an_error(tracker: FsspecTracker) -> None:
    with pytest.raises(TrackerValueError, match="parent_run_id"):
        tracker.run_ids(user="me")


@pytest.mark.parametrize("odd", ODD)
def test_unusual_ids_and_names_are_preserved(odd: str, tracker: FsspecTracker) -> None:
    tracker.add_metadata(odd, **{odd: odd})
    tracker.add_artifact(odd, odd, odd, {odd: odd})
    tracker.add_source(odd, "parent" + odd, odd)
    tracker.add_source("child", odd, odd)
    assert tracker.metadata(odd) == {odd: odd}
    assert tracker.artifacts(odd) == {odd: TrackerArtifact(odd, odd, {odd: odd})}
    assert list(tracker.sources(odd)) == [TrackerSource("parent" + odd, odd)]
    assert list(tracker.sources("child")) == [TrackerSource(odd, odd)]
    assert sorted(tracker.run_ids()) == sorted([odd, "child"])
    assert list(tracker.run_ids(parent_run_id=odd)) == ["child"]
    found = tracker.lineage(odd)
    assert found.sources == [TrackerSource("parent" + odd, odd)]
    assert found.descendants == ["child"]


def test_nothing_is_written_outside_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "a" / "root"
    root.mkdir(parents=True)
    tracker = create(f"protocol=file;root_path={root}")
    for odd in ODD:
        tracker.add_metadata(odd, **{odd: odd})
        tracker.add_source(odd, "../" + odd, odd)
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    assert list((tmp_path / "a").iterdir()) == [root]
    assert all(re.fullmatch("[A-Z2-7]+=*", folder.name) for folder in root.iterdir())


def test_lineage_spans_generations(tracker: FsspecTracker) -> None:
    tracker.add_source("run", "parent", "model")
    tracker.add_source("run", "dataset")
    tracker.add_source("parent", "grandparent")
    tracker.add_source("child", "run")
    tracker.add_source("grandchild", "child", "weights")
    tracker.add_source("grandchild", "unrelated parent")
    tracker.add_source("stranger", "dataset")
    found = tracker.lineage("run")
    assert found.run_id == "run"
    assert found.sources == [
        TrackerSource("dataset", None),
        TrackerSource("parent", "model"),
        TrackerSource("grandparent", None),
    ]
    assert found.descendants == ["child", "grandchild"]


def test_lineage_includes_children_that_started_before_their_parent(tracker: FsspecTracker) -> None:
    tracker.add_source("child", "parent")
    tracker.add_metadata("parent", a=1)
    assert tracker.lineage("parent").descendants == ["child"]


def lay_out(root: Path) -> None:
    for name, text in PEER["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


@pytest.mark.parametrize("kind", ["local", "folders"])
def test_records_of_older_tools_are_read(kind: str, tmp_path: Path) -> None:
    lay_out(tmp_path)
    tracker = (
        create(f"protocol=file;root_path={tmp_path}")
        if kind == "local"
        else FsspecTracker(FoldersFileSystem(), str(tmp_path))
    )
    reads = PEER["reads"]
    assert sorted(tracker.run_ids()) == reads["run_ids"]
    assert sorted(tracker.run_ids(parent_run_id="parent/1")) == reads["run_ids of parent/1"]
    metadata = dict(tracker.metadata(RUN))
    assert metadata.pop("nan") != metadata
    assert metadata == reads["metadata"]
    # The older release uses the order of directory entries, and returned the first 'model' here.
    assert {a.name: [a.path, a.metadata] for a in tracker.artifacts(RUN).values()} == {
        **reads["artifacts"],
        "model": ["/p/model-2.pt", None],
    }
    sources = [[s.source_run_id, s.artifact_name] for s in tracker.sources(RUN)]
    # The older release loses the link to a whole run if there is a link to one of its artifacts.
    assert [s for s in sources if s not in reads["sources"]] == [["both", None]]
    assert [s for s in reads["sources"] if s not in sources] == []
    assert list(tracker.sources(RUN, "weights")) == [TrackerSource("src", "weights")]
    assert tracker.lineage("parent/1").descendants == [RUN, "child"]


@pytest.mark.parametrize("kind", ["local", "folders"])
def test_layout_equals_that_of_older_tools(kind: str, tmp_path: Path) -> None:
    tracker = (
        create(f"protocol=file;root_path={tmp_path}")
        if kind == "local"
        else FsspecTracker(FoldersFileSystem(), str(tmp_path))
    )
    tracker.add_metadata("parent/1", step=1)
    tracker.add_source(RUN, "parent/1")
    tracker.add_metadata(RUN, loss=0.5, note="x é", nested=[1, {"z": None}], nan=float("nan"))
    tracker.add_metadata(RUN, loss=0.25)
    tracker.add_artifact(RUN, "model", "/p/model.pt", {"epoch": 3})
    tracker.add_artifact(RUN, "log", "s3://b/log")
    tracker.add_artifact(RUN, "model", "/p/model-2.pt")
    for artifact in ("weights", "vocab", "weights"):
        tracker.add_source(RUN, "src", artifact)
    tracker.add_source(RUN, "both", "one")
    tracker.add_source(RUN, "both")
    tracker.add_source(RUN, "accent", "é art")
    tracker.add_source("child", RUN, "model")
    tracker.add_source("child", RUN)

    def seen(files: dict[str, str]) -> list[tuple[str, str]]:
        # The names of records contain times, and older releases write only the time.
        return sorted((re.sub(r"/\d{19}[-0-9a-f]*$", "/TIME", n), t) for n, t in files.items())

    files = {
        str(path.relative_to(tmp_path)): path.read_text("utf-8")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "artifacts.index" and path.parent.name != "links"
    }
    assert seen(files) == seen(PEER["files"])


def test_older_tools_may_write_to_the_same_run(local: FsspecTracker, tmp_path: Path) -> None:
    lay_out(tmp_path)
    local.add_metadata(RUN, loss=0.125)
    local.add_artifact(RUN, "new", "/n")
    local.add_source(RUN, "src", "third")
    assert local.metadata(RUN)["loss"] == 0.125
    assert local.metadata(RUN)["note"] == "x é"
    assert sorted(local.artifacts(RUN)) == ["log", "model", "new"]
    assert TrackerSource("src", "third") in local.sources(RUN)
    assert TrackerSource("src", "weights") in local.sources(RUN)


def test_line_is_appended_after_an_incomplete_line(local: FsspecTracker, tmp_path: Path) -> None:
    local.add_source("run", "parent", "one")
    file = tmp_path / encode("run") / "sources" / encode("parent")
    file.write_text("one\ntwo")
    local.add_source("run", "parent", "three")
    assert file.read_text() == "one\ntwo\nthree\n"


def test_root_can_move_to_another_kind_of_store(tmp_path: Path) -> None:
    here = create(f"protocol=file;root_path={tmp_path}")
    here.add_source("run", "x" * 400, "model")
    there = FsspecTracker(FoldersFileSystem(), str(tmp_path))
    assert list(there.sources("run")) == [TrackerSource("x" * 400, "model")]
    there.add_source("run", "x" * 400, "other")
    there.add_source("run", "short", "other")
    assert list(here.sources("run")) == list(there.sources("run"))
    assert len(list(here.sources("run"))) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metadata": 1}', "{}", '{"metadata": {}},{}'])
@pytest.mark.parametrize("kind", ["local", "folders"])
def test_damaged_metadata_file_is_skipped_with_a_warning(
    kind: str, content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = (
        create(f"protocol=file;root_path={tmp_path}")
        if kind == "local"
        else FsspecTracker(FoldersFileSystem(), str(tmp_path))
    )
    tracker.add_metadata("run", a=1)
    damaged = next((tmp_path / encode("run") / "metadata").iterdir())
    tracker.add_metadata("run", b=2)
    damaged.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert tracker.metadata("run") == {"b": 2}
    assert [str(damaged) in record.getMessage() for record in caplog.records] == [True]


def test_unreadable_file_is_skipped_with_a_warning(
    local: FsspecTracker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    local.add_metadata("run", a=1)
    folder = next((tmp_path / encode("run") / "metadata").iterdir())
    folder.unlink()
    folder.mkdir()  # nobody can read a directory as a file, not even root
    local.add_metadata("run", b=2)
    with caplog.at_level(logging.WARNING):
        assert local.metadata("run") == {"b": 2}
    assert str(folder) in caplog.text


@pytest.mark.parametrize("content", ["{", "{}", '{"name": "x"}', '{"name": [], "path": "/"}'])
def test_damaged_artifact_file_is_skipped_with_a_warning(
    content: str, local: FsspecTracker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    local.add_artifact("run", "a", "/a")
    damaged = tmp_path / encode("run") / "artifacts" / "1795225324313107693"
    damaged.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert list(local.artifacts("run")) == ["a"]
    assert str(damaged) in caplog.text


@pytest.mark.parametrize(
    "tear",
    [
        lambda data: b"",
        lambda data: data[:-5],
        lambda data: data[5:],
        lambda data: data.replace(b"\n", b""),
        lambda data: b"\xff\x00" + data,
        lambda data: data + b'["1795225324313107693-gone",{"name":"ghost","path":"/"}]\n',
        lambda data: b"[1]\n{}\n3\n" + data,
    ],
)
def test_index_may_be_missing_or_damaged(
    tear: Callable[[bytes], bytes],
    local: FsspecTracker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(3):
        local.add_artifact("run", f"a{number}", f"/{number}")
    before = local.artifacts("run")
    index = tmp_path / encode("run") / "artifacts.index"
    index.write_bytes(tear(index.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert local.artifacts("run") == before
    assert not caplog.records
    local.add_artifact("run", "a3", "/3")
    assert list(local.artifacts("run")) == ["a0", "a1", "a2", "a3"]


def test_artifact_of_a_deleted_file_is_not_returned(local: FsspecTracker, tmp_path: Path) -> None:
    local.add_artifact("run", "a", "/a")
    local.add_artifact("run", "b", "/b")
    min((tmp_path / encode("run") / "artifacts").iterdir()).unlink()
    assert list(local.artifacts("run")) == ["b"]


@pytest.mark.parametrize("name", ["lost+found", ".git", "lower", "MFRGG", "YPUQ====", "é"])
def test_other_directories_and_files_are_ignored(
    name: str, local: FsspecTracker, tmp_path: Path
) -> None:
    local.add_source("run", "parent")
    (tmp_path / name / "sources").mkdir(parents=True)
    (tmp_path / name / "sources" / encode("parent")).touch()
    (tmp_path / name / "sources" / "not base32").touch()
    (tmp_path / "MFRGGZDF").touch()
    (tmp_path / encode("run") / "metadata").mkdir()
    (tmp_path / encode("run") / "metadata" / ".nfs0001").touch()
    (tmp_path / encode("run") / "sources" / ".nfs0001").touch()
    assert list(local.run_ids()) == ["run"]
    assert list(local.run_ids(parent_run_id="parent")) == ["run"]
    assert local.metadata("run") == {}
    assert list(local.sources("run")) == [TrackerSource("parent", None)]
    assert local.lineage("parent").descendants == ["run"]


def test_recursive_value_is_an_error_with_its_key(local: FsspecTracker) -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(TrackerValueError, match="'bad' of run"):
        local.add_metadata("run", bad=loop)


def test_empty_run_id_is_an_error(tracker: FsspecTracker) -> None:
    for call in (
        lambda: tracker.add_metadata("", a=1),
        lambda: tracker.add_artifact("", "a", "/a"),
        lambda: tracker.add_source("run", ""),
        lambda: tracker.metadata(""),
    ):
        with pytest.raises(TrackerValueError, match="empty"):
            call()
    assert list(tracker.run_ids()) == []


def test_deleted_root_is_an_error(local: FsspecTracker, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    for call in (
        lambda: local.add_metadata("run", a=1),
        lambda: local.add_artifact("run", "a", "/a"),
        lambda: local.add_source("run", "parent"),
        lambda: list(local.run_ids()),
    ):
        with pytest.raises(TrackerBackendError, match="does not exist"):
            call()


def test_unwritable_root_is_an_error(local: FsspecTracker, tmp_path: Path) -> None:
    (tmp_path / encode("run")).touch()  # not even root can create a directory in place of a file
    with pytest.raises(TrackerBackendError, match="cannot write"):
        local.add_metadata("run", a=1)
    with pytest.raises(TrackerBackendError, match="cannot write"):
        local.add_source("run", "parent")


class FailingFileSystem(MemoryFileSystem):
    """A file system that raises the errors of an object store without credentials."""

    protocol = ("s3",)

    def ls(self, path: str, detail: bool = True, **kwargs: object) -> object:
        raise PermissionError("Access Denied")

    def pipe_file(self, path: str, value: bytes, **kwargs: object) -> None:
        raise RuntimeError("Unable to locate credentials")


def test_errors_of_the_store_are_translated() -> None:
    tracker = FsspecTracker(FailingFileSystem(), "bucket/root")
    with pytest.raises(TrackerBackendError, match=r"cannot write .*Unable to locate credentials"):
        tracker.add_metadata("run", a=1)
    with pytest.raises(TrackerBackendError, match=r"cannot list .*Access Denied"):
        tracker.metadata("run")
    with pytest.raises(TrackerBackendError, match="cannot list '/bucket/root"):
        list(tracker.run_ids())


def test_missing_bucket_is_an_error() -> None:
    fs = ObjectFileSystem(0)
    with pytest.raises(TrackerBackendError, match="bucket 'missing' does not exist"):
        list(FsspecTracker(fs, "missing/root").run_ids())


WRITER = """
import sys
from torchx_tracker_fsspec import create
tracker = create(sys.argv[1])
me = int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
number = 0
while number < int(sys.argv[3]):
    tracker.add_metadata("run", **{f"{me}-{number}": "x" * 100, "last": [me, number]})
    tracker.add_artifact("run", f"a-{me}-{number}", "/p", {"n": number})
    tracker.add_source("run", f"source-{number % 3}", f"{me}-{number}")
    tracker.add_source(f"child-{me}", "run")
    number += 1
"""


def writers(root: Path, count: int, each: int) -> list[subprocess.Popen[str]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, f"protocol=file;root_path={root}", str(me), str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(count)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return started


def test_many_writers_lose_no_record(local: FsspecTracker, tmp_path: Path) -> None:
    for process in writers(tmp_path, 8, 25):
        process.communicate()
        assert process.returncode == 0
    metadata = dict(local.metadata("run"))
    assert metadata.pop("last") is not None
    assert metadata == {f"{me}-{number}": "x" * 100 for me in range(8) for number in range(25)}
    assert len(local.artifacts("run")) == 200
    sources = list(local.sources("run"))
    assert len(sources) == 200
    assert {s.artifact_name for s in sources} == {f"{m}-{n}" for m in range(8) for n in range(25)}
    assert sorted(local.run_ids(parent_run_id="run")) == [f"child-{me}" for me in range(8)]


def test_killed_writer_leaves_complete_records(
    local: FsspecTracker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (process,) = writers(tmp_path, 1, 1_000_000)
    wait_for(lambda: len(local.metadata("run")) >= 20)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with caplog.at_level(logging.WARNING):
        metadata = dict(local.metadata("run"))
        artifacts = local.artifacts("run")
        sources = list(local.sources("run"))
    assert not caplog.records
    _, last = metadata.pop("last")
    # The process may have been killed after it wrote its last metadata, before the artifact or the
    # source of the same turn.
    assert sorted(metadata) == sorted(f"0-{number}" for number in range(last + 1))
    assert last + 1 - len(artifacts) in (0, 1)
    assert last + 1 - len(sources) in (0, 1)


def test_forked_process_has_its_own_file_system() -> None:
    made: list[int] = []

    def connect() -> object:
        made.append(os.getpid())
        return fsspec.filesystem("memory")

    from torchx_tracker_fsspec.remote import RemoteStore

    store = RemoteStore(connect, "/root")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store.names("run", "metadata")
            code = 0 if made == [os.getppid(), os.getpid()] else 1
        finally:  # the child must not return to pytest
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.names("run", "metadata")
    assert made == [os.getpid()]


def test_forked_processes_create_different_names(local: FsspecTracker) -> None:
    local.add_metadata("run", parent=1)
    pids = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for turn in range(50):
                    local.add_metadata("run", **{f"{number}-{turn}": turn})
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(local.metadata("run")) == 201


def test_history_has_the_numbers_of_each_call_over_steps(tracker: FsspecTracker) -> None:
    for step in (0, 10):
        tracker.add_metadata("run", step=step, loss=1.0 / (step + 1), name="x", done=True)
    tracker.add_metadata("run", plain=5)
    tracker.add_metadata("run", plain=6)
    assert tracker.history("run") == {
        "loss": [(0, 1.0), (10, 1.0 / 11)],
        "plain": [(0, 5), (1, 6)],
    }
    assert tracker.history("other") == {}
