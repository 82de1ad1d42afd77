"""The scheduler class, which connects the parts of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.client import client_arguments
from torchx_kit.jobs.cluster_scheduler import ClusterScheduler
from torchx_sched_sge.client import Sge
from torchx_sched_sge.names import job_name, make_app_id, split_job_name
from torchx_sched_sge.options import SgeOpts, option_problems
from torchx_sched_sge.queries import all_tasks
from torchx_sched_sge.records import Entry, Index, app_record
from torchx_sched_sge.request import SgeRequest, container_of
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.features import No


class SgeScheduler(ClusterScheduler[SgeOpts, Entry]):
    """A scheduler that runs apps as array jobs of Grid Engine, by Grid Engine's commands.

    Each role is a job, named ``<app id>-<role>``, and its replicas are the job's tasks. When a
    replica has failed and has no retries left, the other replicas of the app end themselves.

    The logs are in ``job_dir`` (default: the current directory). The app's record, in which the
    replicas report how they ended, is in the same directory.

    Args:
        session_name: Name of the session.
        timeout: How long one command of Grid Engine may take, in seconds.
        patience: How long to retry while Grid Engine is unreachable, in seconds.
        host: The machine with Grid Engine's commands and the jobs' files; by default this machine.
    """

    features = replace(
        ClusterScheduler.features,
        dependencies=No("Grid Engine waits for the end of a job, whatever its exit code is"),
        arrays=No("the tasks of an array are the replicas of a role"),
    )
    _index: Index

    def __init__(
        self,
        session_name: str,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        host: Host | None = None,
    ) -> None:
        self._sge = Sge(host, timeout, patience)
        super().__init__("sge", session_name, self._sge.host, Index())

    # Methods that submit apps.

    def _request_problems(self, app: AppDef, cfg: SgeOpts) -> Iterable[str]:
        yield from option_problems(cfg)
        for role in app.roles:
            if role.mounts and container_of(role, cfg) == "none":
                yield (
                    f"role '{role.name}': mounts need a container; set the option"
                    " container=apptainer"
                )

    def _submit_dryrun(self, app: AppDef, cfg: SgeOpts) -> AppDryRunInfo[SgeRequest]:
        folder = self._host.resolve(cfg.job_dir) if cfg.job_dir else ""
        request = SgeRequest(make_app_id(app.name), app, cfg, folder)
        request.materialize()  # report invalid arguments in the dry run
        return AppDryRunInfo(request, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[SgeRequest]) -> str:
        """Build the workspaces that the dry run planned, and submit a job for each role.

        The jobs are held until Grid Engine has accepted all of them. If Grid Engine refuses a job,
        or if Ctrl-C interrupts the submission, the jobs submitted before are deleted.

        Raises:
            SgeError: Grid Engine refuses a job, or is unreachable.
            RequestError: The app's directory is not writable.
            WorkspaceError: A workspace cannot be copied.
        """
        from torchx_sched_sge.submit import submit

        self.build_pending(dryrun_info)
        request = dryrun_info.request
        if self._index.get(request.app_id) is not None:  # this dry run was submitted before
            request = replace(request, app_id=make_app_id(request.app.name))
        submit(self._sge, request, self._index)
        return request.app_id

    # Methods for submitted apps.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the app does not exist.

        The description combines the app's record, the output of qstat, and the accounting.

        Raises:
            SgeError: Grid Engine cannot be queried, and not all replicas have recorded their end.
        """
        from torchx_sched_sge.describe import describe, describe_by_names
        from torchx_sched_sge.interrupted import finish_submission

        entry = self._index.get(app_id)
        if entry is not None and entry.deleted:
            return None
        if entry is not None:
            entry = finish_submission(self._sge, self._index, entry)
            return describe(self._sge, self._index, entry)
        if split_job_name(job_name(app_id, "role")) is None:
            return None
        return describe_by_names(app_id, all_tasks(self._sge))

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's apps.

        The list contains the apps submitted with the current ``$TORCHX_HOME``, and other apps of
        TorchX in the queue, without apps whose submission was interrupted before the first job.

        Raises:
            SgeError: Grid Engine cannot be queried.
        """
        from torchx_kit.jobs.descriptions import listed
        from torchx_sched_sge.describe import describe_by_names, describe_with
        from torchx_sched_sge.interrupted import finish_submission

        entries = {
            entry.app_id: finish_submission(self._sge, self._index, entry)
            for entry in self._index.entries()
        }
        tasks = all_tasks(self._sge)
        apps = [
            listed(describe_with(self._sge, self._index, entry, tasks), name=entry.name)
            for entry in entries.values()
            if not (entry.deleted or entry.interrupted)
        ]
        names = [found[0] for task in tasks.values() if (found := split_job_name(task.name))]
        for app_id in dict.fromkeys(name for name in names if name not in entries):
            described = describe_by_names(app_id, tasks)
            if described is not None:
                apps.append(listed(described))
        return apps

    def _cancel_existing(self, app_id: str) -> None:
        from torchx_sched_sge.submit import delete, delete_jobs

        entry = self._index.get(app_id)
        if entry is None:
            found = [(split_job_name(t.name), t.job_id) for t in all_tasks(self._sge).values()]
            delete(self._sge, sorted({job for name, job in found if name and name[0] == app_id}))
            return
        if entry.final is not None:
            return
        described = self.describe(app_id)
        if described is not None and not is_terminal(described.state):
            entry.cancelled = True
            self._index.put(entry)
        delete_jobs(self._sge, entry)

    def withdraw(self, app_id: str) -> bool:
        """Cancel an app unless a task has started; see :meth:`Scheduler.withdraw`.

        Raises:
            RequestError: The app was submitted with another ``$TORCHX_HOME``.
            SgeError: Grid Engine refuses, or cannot be reached.
        """
        from torchx_sched_sge.submit import add_missing_jobs, delete_jobs
        from torchx_sched_sge.withdrawal import hold_unless_started, release

        entry = self._index.get(app_id)
        if entry is None:
            raise RequestError(
                f"'{app_id}' is not in this user's index of Grid Engine's apps; only an app that"
                " this user submitted can be withdrawn"
            )
        record = app_record(self._host, entry)
        if entry.final is None and not entry.deleted:
            add_missing_jobs(self._sge, entry)
            may_be_held = record.begin_withdrawal()
            is_held = not entry.has_report(self._host) and hold_unless_started(self._sge, entry)
            # A task may have run and been rescheduled before it was held.
            if is_held and not entry.has_report(self._host):
                entry.cancelled = True
                self._index.put(entry)
                delete_jobs(self._sge, entry)
                record.end_withdrawal()
                return True
            if is_held or may_be_held:
                release(self._sge, entry)
            record.end_withdrawal()
        described = self.describe(app_id)
        is_cancelled = described is not None and described.state == AppState.CANCELLED
        return is_cancelled and not entry.has_report(self._host)


def create_scheduler(session_name: str, **kwargs: Any) -> SgeScheduler:
    """Return the scheduler.

    Args:
        session_name: Name of the session.
        kwargs: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
    """
    return SgeScheduler(session_name, **client_arguments(kwargs))
