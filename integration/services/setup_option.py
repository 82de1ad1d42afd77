"""Checks of the option ``setup`` of schedulers that run it on the host of each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from waiting import wait_for

from torchx_specs import AppState
from torchx_specs.schedulers import Stream

#: Submits a line of bash as the role ``main``, with the number of replicas and the lines of
#: ``setup``, and returns the app's id.
Submit = Callable[[str, int, Sequence[str]], str]


def check_effect(scheduler: Any, submit: Submit, work: Path) -> None:
    """Check that variables and the directory of ``setup`` reach the program of each replica."""
    (work / "module.sh").write_text("module() { export LOADED=$2; }\n")
    (work / "other").mkdir()
    setup = [f". '{work}/module.sh'", "module load cuda/12", "cat << END", "  from setup", "END"]
    app_id = submit('echo "$LOADED $PWD"', 2, [*setup, f"cd '{work}/other'"])
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    for k in range(2):
        lines = [str(line) for line in scheduler.log_iter(app_id, "main", k)]
        assert lines == ["  from setup\n", f"cuda/12 {work}/other\n"]


def check_failure(scheduler: Any, submit: Submit, line: str, code: int) -> None:
    """Check that a line of ``setup`` that fails ends the app, whose status names the line."""
    app_id = submit("echo program", 1, ["true", line, "echo next line"])
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    expected = f"setup failed with exit code {code} at: {line}"
    assert expected in found.msg
    assert found.roles_statuses[0].replicas[0].reason == expected
    text = "".join(scheduler.log_iter(app_id, "main", 0, streams=Stream.COMBINED))
    assert expected in text
    assert "program" not in text
    assert "next line" not in text
