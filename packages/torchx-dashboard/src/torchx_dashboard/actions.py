"""Actions on jobs, which the page offers only if ``--allow-actions`` was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_dashboard.jobs import Journal
from torchx_runner.submissions.changes import with_fields
from torchx_runner.submissions.recorded_code import use_recorded_code
from torchx_specs.errors import RequestError
from torchx_specs.formats.serialize import from_dict
from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_dashboard.runners import Runners
    from torchx_runner import AsyncRunner


async def act(
    runners: Runners, journal: Journal, action: str, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Cancel, delete or rerun a job; return the handle of the changed or new job.

    Args:
        runners: Carry out the action.
        journal: Has the definitions of jobs to rerun.
        action: ``cancel``, ``delete`` or ``rerun``.
        data: ``handle``: the job; for ``rerun`` also ``set``: assignments such as ``env.LR=0.1``.

    Raises:
        RequestError: The action or an assignment is invalid, or the job cannot be rerun.
    """
    handle = str(data.get("handle", ""))
    runner = runners.of_app(handle)
    if action == "cancel":
        await runner.cancel(handle)
    elif action == "delete":
        await runner.delete(handle)
    elif action == "rerun":
        assignments = data.get("set") or ()
        if not isinstance(assignments, list):
            raise RequestError("'set' must be a list of texts such as 'env.LR=0.1'")
        handle = await _rerun(runner, journal, handle, [str(text) for text in assignments])
    else:
        raise RequestError(f"unknown action '{action:.50}'; actions: cancel, delete, rerun")
    return {"handle": handle}


async def _rerun(
    runner: AsyncRunner, journal: Journal, handle: str, assignments: Sequence[str]
) -> str:
    scheduler = parse_app_handle(handle).scheduler_backend
    submission = journal.find(handle)
    if submission is None or submission.app is None:
        reason = submission.app_missing if submission else "you did not submit it from this machine"
        raise RequestError(f"the journal does not have the definition of {handle}: {reason}")
    app = from_dict(with_fields(submission.app, assignments))
    cfg = dict(submission.cfg)
    if await runner.lives_in_client(scheduler, cfg):
        # The job must continue after the dashboard ends.
        if (await runner.scheduler_run_opts(scheduler)).get("detach") is None:
            raise RequestError(f"jobs of {scheduler} with these options end with the dashboard")
        cfg["detach"] = True
    workspace, _ = use_recorded_code(app, submission, scheduler)
    return await runner.run(app, scheduler, cfg, workspace, submission.parent_run_id)
