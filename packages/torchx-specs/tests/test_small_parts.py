"""Letter cases, the home directory, type names, constants and images."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Dict, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchx_specs
from torchx_specs import TORCHX_HOME, app_metadata, cases, get_type_name, images
from torchx_specs.errors import ConfigError, nearest
from torchx_specs.home import home_path
from torchx_specs.settings import tracker_config_env_var_name


class TestCases:
    @pytest.mark.parametrize(
        ("snake", "camel"),
        [
            ("job_queue", "jobQueue"),
            ("a", "a"),
            ("", ""),
            ("_private_name", "_privateName"),
            ("a_b_c", "aBC"),
            ("mem_mb", "memMb"),
        ],
    )
    def test_snake_to_camel(self, snake: str, camel: str) -> None:
        assert cases.snake_to_camel(snake) == camel

    @pytest.mark.parametrize(
        ("camel", "snake"),
        [
            ("jobQueue", "job_queue"),
            ("efsID", "efs_id"),
            ("HTTPServer", "http_server"),
            ("already_snake", "already_snake"),
            ("a", "a"),
            ("", ""),
            ("_privateName", "_private_name"),
        ],
    )
    def test_camel_to_snake(self, camel: str, snake: str) -> None:
        assert cases.camel_to_snake(camel) == snake

    @given(st.from_regex(r"[a-z]{2,}(_[a-z]{2,}){0,3}", fullmatch=True))
    def test_there_and_back(self, name: str) -> None:
        assert cases.camel_to_snake(cases.snake_to_camel(name)) == name


class TestHome:
    def test_the_variable(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
        made = TORCHX_HOME("local", "jobs")
        assert made == tmp_path / "home" / "local" / "jobs"
        assert made.is_dir()
        assert stat.S_IMODE(made.stat().st_mode) == 0o700

    @pytest.mark.parametrize("unset", [None, ""])
    def test_below_the_user_s(
        self, unset: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("TORCHX_HOME", raising=False)
        if unset is not None:
            monkeypatch.setenv("TORCHX_HOME", unset)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert home_path("x") == f"{tmp_path}/.torchx/x"
        assert not (tmp_path / ".torchx").exists()
        assert tmp_path / ".torchx" == TORCHX_HOME()
        assert (tmp_path / ".torchx").is_dir()

    def test_it_cannot_be_made(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "file"))
        with pytest.raises(ConfigError, match=r"cannot create .*/file/x: .*set TORCHX_HOME"):
            TORCHX_HOME("x")


@pytest.mark.parametrize(
    ("tp", "name"),
    [
        (int, "int"),
        (List[str], "List[str]"),
        (Dict[str, int], "Dict[str, int]"),
        (Optional[int], "Optional[int]"),
        (list[str], "list[str]"),
    ],
)
def test_names_of_types(tp: object, name: str) -> None:
    assert get_type_name(tp) == name


@pytest.mark.parametrize(
    ("name", "candidates", "said"),
    [
        ("gpu.smal", ["gpu.small", "cpu.small"], " did you mean 'gpu.small'?"),
        ("JOB-QUEUE", ["job_queue"], " did you mean 'job_queue'?"),
        ("zzz", ["job_queue"], ""),
        ("x", [], ""),
    ],
)
def test_the_nearest_name(name: str, candidates: list[str], said: str) -> None:
    assert nearest(name, candidates) == said


@pytest.mark.parametrize(
    ("tracker", "variable"),
    [
        ("mlflow", "TORCHX_TRACKER_MLFLOW_CONFIG"),
        ("my-t.2", "TORCHX_TRACKER_MY_T_2_CONFIG"),
        ("ü", "TORCHX_TRACKER___CONFIG"),
    ],
)
def test_the_variable_of_a_tracker(tracker: str, variable: str) -> None:
    assert tracker_config_env_var_name(tracker) == variable


def test_constants() -> None:
    named = (torchx_specs.ALL, torchx_specs.MISSING, torchx_specs.NONE, torchx_specs.UNKNOWN)
    assert named == ("all", "<MISSING>", "<NONE>", "<UNKNOWN>")
    assert (torchx_specs.NA, torchx_specs.GiB) == ("<<NA>>", 1024)
    assert torchx_specs.TORCHX_CONTEXT_NAME == "TORCHX_CONTEXT_NAME"
    assert (app_metadata.CONTEXT, app_metadata.VERSION) == ("torchx/context", "torchx/version")
    assert (app_metadata.SCHEDULER, app_metadata.ROLES_PREFIX) == (
        "torchx/scheduler",
        "torchx/roles.",
    )


def test_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_IMAGE", raising=False)
    assert images.get_image() == images.PUBLISHED_IMAGE
    monkeypatch.setenv("TORCHX_IMAGE", "mine:1")
    assert images.get_image() == "mine:1"
