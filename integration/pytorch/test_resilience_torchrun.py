"""torchrun loses exit code 75 of its ranks; an app with ``requeue`` still starts again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import resilient_loop

from patience import wait_for
from torchx_components import dist
from torchx_runner import get_runner
from torchx_specs import AppState

WORLD = 2


@pytest.mark.parametrize("fault", ["request", "outside"])
def test_ranks_of_torchrun_ask_for_another_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    app = dist.ddp(str(tmp_path), fault, script=resilient_loop.__file__, j=f"1x{WORLD}", name="/t")
    with get_runner() as runner:
        handle = runner.run(app, "local_cwd", {"resume_dir": str(tmp_path / "resume")})
        if fault == "outside":
            pids = [tmp_path / f"pid-{rank}" for rank in range(WORLD)]
            wait_for(lambda: all(pid.exists() for pid in pids))
            os.kill(int(pids[1].read_text()), signal.SIGTERM)
            (tmp_path / "go").touch()
        status = runner.wait(handle, 0.1)
    assert status is not None
    assert status.state == AppState.SUCCEEDED
    assert [attempt.reason for attempt in status.attempts] == ["requested", "succeeded"]
    assert resilient_loop.check(tmp_path, WORLD) == ["none", "requested"]
