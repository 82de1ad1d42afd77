"""Tests of the fsspec tracker on an S3 endpoint, through s3fs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.trackers.api import (
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
)
from torchx_tracker.trackers import build_tracker

#: The number of keys in a page of a listing, as in ``integration/services/moto.sh``.
PAGE = 100
WRITER = Path(__file__).with_name("many_writers.py")


@pytest.fixture
def tracker(s3_config: str) -> TrackerBase:
    return build_tracker("fsspec", s3_config.replace("\n", ";"))


def test_thousand_artifacts_are_kept_in_order(tracker: TrackerBase) -> None:
    for number in range(1000):
        tracker.add_artifact("run", f"a{number}", f"/{number}", {"n": number})
    found = tracker.artifacts("run")
    assert list(found) == [f"a{number}" for number in range(1000)]
    assert found["a999"] == TrackerArtifact("a999", "/999", {"n": 999})


def test_runs_of_several_pages_are_listed(tracker: TrackerBase, bucket: str, moto: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import s3fs

    count = 2 * PAGE + 10

    def record(number: int) -> None:
        tracker.add_source(f"run-{number:04}", f"parent-{number % 7}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(count)))
    fs = s3fs.S3FileSystem(client_kwargs={"endpoint_url": moto.url}, use_listings_cache=False)
    assert fs.call_s3("list_objects_v2", Bucket=bucket)["KeyCount"] == PAGE
    assert sorted(tracker.run_ids()) == [f"run-{number:04}" for number in range(count)]
    children = sorted(tracker.run_ids(parent_run_id="parent-3"))
    assert children == [f"run-{number:04}" for number in range(count) if number % 7 == 3]
    assert sorted(tracker.lineage("parent-3").descendants) == children


def test_concurrent_writers_lose_nothing(
    s3_config: str, tracker: TrackerBase, tmp_path: Path
) -> None:
    config = s3_config.replace("\n", ";")
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), config, str(number), "25", str(tmp_path)],
            stdin=subprocess.PIPE,
        )
        for number in range(8)
    ]
    for process in writers:
        process.communicate(b"\n")
        assert process.returncode == 0
    turns = {f"{number}-{turn}" for number in range(8) for turn in range(25)}
    assert tracker.metadata("run") == dict.fromkeys(turns, "x" * 200)
    assert set(tracker.artifacts("run")) == {f"artifact-{turn}" for turn in turns}
    assert {source.artifact_name for source in tracker.sources("run")} == {
        f"{number}-{turn}" for number in range(8) for turn in (0, 20)
    }


def test_forked_process_may_use_the_tracker_of_its_parent(tracker: TrackerBase) -> None:
    tracker.add_metadata("run", parent=1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            tracker.add_metadata("run", child=1)
            code = 0
        finally:  # The child must not continue as a second pytest.
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert tracker.metadata("run") == {"parent": 1, "child": 1}


def test_error_names_a_missing_bucket(moto: Any, aws: None) -> None:
    config = f"protocol=s3;root_path=no-such-bucket/runs;client_kwargs.endpoint_url={moto.url}"
    tracker = build_tracker("fsspec", config)
    with pytest.raises(TrackerBackendError, match="no-such-bucket"):
        tracker.add_metadata("run", a=1)
    with pytest.raises(TrackerBackendError, match="bucket 'no-such-bucket' does not exist"):
        list(tracker.run_ids())


def test_missing_credentials_are_an_error(
    s3_config: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    tracker = build_tracker("fsspec", s3_config.replace("\n", ";") + "use_ssl=false")
    with pytest.raises(TrackerBackendError, match=r"(?i)credentials"):
        tracker.add_metadata("run", a=1)
    with pytest.raises(TrackerBackendError, match=r"(?i)credentials"):
        tracker.metadata("run")


def test_error_names_an_unreachable_endpoint(aws: None) -> None:
    config = "protocol=s3;root_path=bucket/runs;client_kwargs.endpoint_url=http://127.0.0.1:9"
    tracker = build_tracker("fsspec", config)
    with pytest.raises(TrackerBackendError, match=r"127\.0\.0\.1:9"):
        tracker.add_metadata("run", a=1)
