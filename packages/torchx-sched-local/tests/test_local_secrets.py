"""Tests that secrets reach only the replicas that refer to them, and no record."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_helpers import finish, lines, sh, submit

from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs import AppDef, AppState, RetryPolicy, secret

VALUE = "p4ss $w'ord\n2"


@pytest.fixture
def secret_file(home: Path) -> Path:
    (home / "secrets").mkdir(parents=True, mode=0o700)
    path = home / "secrets" / "hf"
    path.write_text(VALUE + "\n")
    path.chmod(0o600)
    return path


def find_value(root: Path, value: str) -> list[str]:
    """Return the files below a folder that contain a value."""
    data = value.encode()
    return [str(path) for path in root.rglob("*") if path.is_file() and data in path.read_bytes()]


@pytest.mark.parametrize("detach", [False, True])
def test_the_program_receives_the_value_and_no_record_contains_it(
    scheduler: LocalScheduler, home: Path, secret_file: Path, tmp_path: Path, detach: bool
) -> None:
    out = tmp_path / "outside"
    out.mkdir()
    # The second attempt starts after the file was deleted.
    script = (
        f'printf %s "$HF_TOKEN" > {out}/${{replica_id}}-$TORCHX_RESTART_COUNT;'
        f' rm -f "{secret_file}"; tr "\\0" "\\n" < /proc/$$/cmdline;'
        " exit $((1 - TORCHX_RESTART_COUNT))"
    )
    role = sh(
        script,
        num_replicas=2,
        env={"HF_TOKEN": secret("hf")},
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
    )
    other = sh("env", "other")
    info = scheduler.submit_dryrun(AppDef("app", [role, other]), {"detach": detach})
    assert VALUE not in repr(info)
    assert "'${secret:hf}'" in repr(info)
    app_id = scheduler.schedule(info)
    description = finish(scheduler, app_id)
    assert description.state == AppState.SUCCEEDED
    names = ["0-0", "0-1", "1-0", "1-1"]
    assert {name: (out / name).read_text() for name in names} == dict.fromkeys(names, VALUE)
    assert description.roles[0].env["HF_TOKEN"] == "${secret:hf}"
    assert find_value(home, "p4ss") == []
    assert not any("p4ss" in line for line in lines(scheduler, app_id, "main"))
    assert not any("HF_TOKEN" in line for line in lines(scheduler, app_id, "other"))


@pytest.mark.parametrize("detach", [False, True])
def test_a_variable_with_a_secret_reaches_only_the_replicas_that_refer_to_it(
    scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch, detach: bool
) -> None:
    monkeypatch.setenv("TORCHX_SECRET_DB__PASSWORD", "p4ss")
    env = {"DB_PASSWORD": secret("db", "password")}
    roles = [sh("env | grep -c p[4]ss; :", "a", env=env), sh("env | grep -c p[4]ss; :", "b")]
    app_id = submit(scheduler, *roles, detach=detach)
    finish(scheduler, app_id)
    assert lines(scheduler, app_id, "a") == ["1\n"]
    assert lines(scheduler, app_id, "b") == ["0\n"]
    assert find_value(home, "p4ss") == []
