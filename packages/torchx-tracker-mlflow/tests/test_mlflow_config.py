from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from torchx_kit.trackers.inline import from_data_uri
from torchx_specs.trackers.api import TrackerValueError
from torchx_tracker_mlflow import MLflowTracker, create_tracker
from torchx_tracker_mlflow.config import inline_config, read_config

FILE = """
[tracker:mlflow]
type = mlflow
config = /somewhere
tracking_uri = http://user:pass%word@host:5000
experiment_name = é
artifact_location =
"""


def test_directory_or_file_is_read(tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text(FILE, "utf-8")
    expected = {"tracking_uri": "http://user:pass%word@host:5000", "experiment_name": "é"}
    assert read_config(str(tmp_path)) == expected
    assert read_config(str(tmp_path / ".torchxconfig")) == expected


def test_all_other_forms_are_read() -> None:
    assert read_config(None) == read_config("") == {}
    assert read_config("http://host:5000") == {"tracking_uri": "http://host:5000"}
    assert read_config("databricks") == {"tracking_uri": "databricks"}
    inline = "tracking_uri=http://h;experiment_name=e"
    assert read_config(inline) == {"tracking_uri": "http://h", "experiment_name": "e"}
    assert read_config("data:,experiment_name%3De") == {"experiment_name": "e"}


def test_inline_config_inlines_a_file(tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text(FILE, "utf-8")
    inlined = inline_config(str(tmp_path))
    assert (from_data_uri(inlined) or "").splitlines() == [
        "tracking_uri=http://user:pass%word@host:5000",
        "experiment_name=é",
    ]
    assert create_tracker.inline_config is inline_config  # type: ignore[attr-defined]
    (tmp_path / ".torchxconfig").unlink()
    tracker = create_tracker(inlined)
    assert isinstance(tracker, MLflowTracker)
    assert tracker.experiment_name == "é"


def test_inline_config_keeps_the_path_of_a_missing_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert inline_config("/no/folder") == "/no/folder"
    assert "'/no/folder' does not exist" in caplog.text
    assert inline_config("http://host") == "http://host"


def test_invalid_configuration_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / ".torchxconfig"
    file.write_text("[other]\n")
    with pytest.raises(TrackerValueError, match=r"has no section \[tracker:mlflow\]"):
        create_tracker(str(tmp_path))
    file.write_text("[tracker:mlflow]\ntracking_url=http://h\n")
    with pytest.raises(TrackerValueError, match="'tracking_url'; did you mean 'tracking_uri'"):
        create_tracker(str(tmp_path))
    file.write_text("no section\n")
    with pytest.raises(TrackerValueError, match="cannot be read"):
        create_tracker(str(tmp_path))


def test_experiment_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflowTracker(experiment_name="mine")
    assert tracker.experiment_name == "mine"
    monkeypatch.setenv("TORCHX_TRACKING_EXPERIMENT_NAME", "theirs")
    assert tracker.experiment_name == "theirs"
    monkeypatch.delenv("TORCHX_TRACKING_EXPERIMENT_NAME")
    assert MLflowTracker().experiment_name.startswith("default-experiment/")


def test_password_of_the_uri_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflowTracker(tracking_uri="http://user:secret@host:1")
    assert repr(tracker) == "<MLflowTracker: tracking_uri=http://host:1>"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    assert repr(MLflowTracker()) == "<MLflowTracker: tracking_uri=http://elsewhere>"


def test_plugin_does_not_import_the_tracker() -> None:
    code = (
        "import sys, torchx_tracker_mlflow.plugin\n"
        "print([m for m in sys.modules if m.startswith('torchx_tracker_mlflow.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['torchx_tracker_mlflow.plugin']"
