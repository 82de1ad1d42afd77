from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from torchx_kit.trackers.inline import from_data_uri
from torchx_specs.trackers.api import TrackerBackendError, TrackerValueError
from torchx_tracker_fsspec import FsspecTracker, create
from torchx_tracker_fsspec.config import inline_config, parse, read_config


def test_parse_nests_keys_with_dots() -> None:
    text = "# c=1\nprotocol = s3 \n root_path=b/p\nclient_kwargs.endpoint_url=http://h:1\nnothing\na=b=c\n"
    assert parse(text, "x") == {
        "protocol": "s3",
        "root_path": "b/p",
        "client_kwargs": {"endpoint_url": "http://h:1"},
        "a": "b=c",
    }


def test_parse_returns_text_and_booleans() -> None:
    assert parse("a=true\nb=False\nc=1\nd=null", "x") == {
        "a": True,
        "b": False,
        "c": "1",
        "d": "null",
    }


@pytest.mark.parametrize("line", ["a.=1", ".a=1", "=1", "a..b=1"])
def test_invalid_key_is_an_error_with_its_line(line: str) -> None:
    with pytest.raises(TrackerValueError, match=r"conf, line 2: '.*' is not a valid key"):
        parse("x=1\n" + line, "conf")


@pytest.mark.parametrize("text", ["a=1\na.b=2", "a.b=2\na=1"])
def test_key_with_value_and_own_keys_is_an_error(text: str) -> None:
    with pytest.raises(TrackerValueError, match="line 2: 'a' has both a value and keys"):
        parse(text, "conf")


@pytest.mark.parametrize("config", [None, "", "  "])
def test_missing_configuration_is_an_error(config: str | None) -> None:
    with pytest.raises(TrackerValueError, match=r"set config in \[tracker:fsspec\]"):
        read_config(config)


def test_missing_setting_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "conf"
    file.write_text("protocol=file\n")
    with pytest.raises(TrackerValueError, match=f"{file}.* root_path must be set"):
        read_config(str(file))


def test_missing_file_is_an_error() -> None:
    with pytest.raises(TrackerValueError, match="'/no/such/conf' does not exist"):
        read_config("/no/such/conf")


def test_binary_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "conf").write_bytes(b"\xff\xfe")
    with pytest.raises(TrackerValueError, match="conf' cannot be read"):
        read_config(str(tmp_path / "conf"))
    with pytest.raises(TrackerValueError, match="cannot be read"):
        read_config(str(tmp_path))


def test_all_forms_of_a_configuration_are_equivalent(tmp_path: Path) -> None:
    file = tmp_path / "conf"
    file.write_text("protocol=file\nroot_path=/r\n")
    expected = {"protocol": "file", "root_path": "/r"}
    assert read_config(str(file)) == expected
    assert read_config(f"file://{file}") == expected
    assert read_config("protocol=file;root_path=/r") == expected
    assert read_config("root_path=/r;protocol=file") == expected
    assert read_config("data:,protocol%3Dfile%0Aroot_path%3D/r") == expected


def test_url_is_read_with_fsspec() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/conf", b"protocol=file\nroot_path=/r\n")
    assert read_config("memory://conf") == {"protocol": "file", "root_path": "/r"}
    with pytest.raises(TrackerValueError, match="memory://nope' cannot be read"):
        read_config("memory://nope")


def test_inline_config_inlines_a_file(tmp_path: Path) -> None:
    file = tmp_path / "conf"
    file.write_text(f"protocol=file\nroot_path={tmp_path}\n")
    inlined = inline_config(str(file))
    assert from_data_uri(inlined) == file.read_text()
    assert create.inline_config is inline_config  # type: ignore[attr-defined]
    file.unlink()
    tracker = create(inlined)
    assert repr(tracker) == f"<FsspecTracker: root_path={tmp_path}>"


@pytest.mark.parametrize("config", ["s3://b/conf", "protocol=file;root_path=/r", "data:,a%3D1"])
def test_inline_config_keeps_other_forms(config: str) -> None:
    assert inline_config(config) == config


def test_inline_config_keeps_the_path_of_a_missing_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert inline_config("/no/conf") == "/no/conf"
    assert "'/no/conf' does not exist" in caplog.text


def test_missing_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrackerValueError, match=f"'{tmp_path}/no' does not exist; create it"):
        create(f"protocol=file;root_path={tmp_path}/no")
    (tmp_path / "file").touch()
    with pytest.raises(TrackerValueError, match="is not a directory"):
        create(f"protocol=file;root_path={tmp_path}/file")


def test_auto_mkdir_creates_the_root(tmp_path: Path) -> None:
    create(f"protocol=file;root_path={tmp_path}/a/b;auto_mkdir=true").add_metadata("run", x=1)
    assert (tmp_path / "a" / "b").is_dir()


def test_unknown_protocol_is_an_error() -> None:
    with pytest.raises(TrackerValueError, match="nosuch"):
        create("protocol=nosuch;root_path=/x")


def test_invalid_option_of_the_file_system_is_an_error() -> None:
    with pytest.raises((TrackerValueError, TrackerBackendError), match=r"sftp|paramiko|host"):
        create("protocol=sftp;root_path=/x;bogus=1")


def test_constructor_accepts_a_file_system(tmp_path: Path) -> None:
    import fsspec

    tracker = FsspecTracker(fsspec.filesystem("file"), str(tmp_path))
    assert repr(tracker) == f"<FsspecTracker: root_path={tmp_path}>"
    tracker.add_metadata("run", a=1)
    assert tracker.metadata("run") == {"a": 1}


def test_local_disk_does_not_import_fsspec(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from torchx_tracker_fsspec import create\n"
        f"create('protocol=file;root_path={tmp_path}').add_metadata('run', a=1)\n"
        "print([m for m in ('fsspec', 'asyncio', 'logging', 'pluggy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_plugin_does_not_import_the_tracker() -> None:
    code = (
        "import sys, torchx_tracker_fsspec.plugin\n"
        "print([m for m in sys.modules if m.startswith('torchx_tracker_fsspec.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['torchx_tracker_fsspec.plugin']"
