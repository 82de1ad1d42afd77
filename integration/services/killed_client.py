"""A submission whose client is killed at a point that a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchx_kit.batch import submit
from torchx_kit.batch.entries import Index
from torchx_kit.batch.scheduler import BatchScheduler
from torchx_kit.hosts import agent
from torchx_specs import AppDef, AppState


def submit_until(
    monkeypatch: pytest.MonkeyPatch,
    create_scheduler: Callable[[str], BatchScheduler[Any]],
    app: AppDef,
    command: str,
    count: int,
) -> str:
    """Submit an app, and stop before the given call of a command; return the app's id.

    The state is then that of a client that was killed at this moment, a minute ago.

    Args:
        monkeypatch: The fixture.
        create_scheduler: Returns the scheduler.
        app: The app.
        command: Name of the command.
        count: The number of the call: 1 for the first.
    """
    calls = []

    class Killed(BaseException):
        pass

    def run_until(argv: list[str], *arguments: Any) -> list[Any]:
        calls.append(argv[0])
        if calls.count(command) == count:
            raise Killed
        return agent.run(argv, *arguments)

    scheduler = create_scheduler("test")
    with monkeypatch.context() as patch:
        patch.setitem(agent.OPERATIONS, "run", run_until)
        patch.setattr(submit, "_undo", lambda *args: None)
        with pytest.raises(Killed):
            scheduler.submit(app, {})
    index = Index(scheduler.backend)
    [entry] = index.entries()
    entry.submitted -= 60.0
    index.put(entry)
    found = create_scheduler("test").describe(entry.app_id)
    assert found is not None
    assert found.state == AppState.PENDING
    entry.submitter["started"] = "0"  # another process has the pid now
    index.put(entry)
    return entry.app_id
