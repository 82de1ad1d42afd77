"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.client import client_arguments
from torchx_kit.jobs.arrays import array_state
from torchx_kit.jobs.cluster_scheduler import ClusterScheduler
from torchx_kit.jobs.descriptions import combined_state
from torchx_sched_lsf.client import Lsf as Lsf
from torchx_sched_lsf.client import LsfError as LsfError
from torchx_sched_lsf.client import UnreachableError as UnreachableError
from torchx_sched_lsf.job_files.records import Entry, Index, LsfRecord
from torchx_sched_lsf.names import app_of_job, job_name, make_app_id, split_element
from torchx_sched_lsf.names import cleanup_str as cleanup_str
from torchx_sched_lsf.options import LsfOpts as LsfOpts
from torchx_sched_lsf.options import option_problems
from torchx_sched_lsf.queue.kill import kill_jobs
from torchx_sched_lsf.queue.queries import Job, all_jobs, explain_jobs, jobs_by_id, jobs_of_app
from torchx_sched_lsf.queue.queries import bjobs_msg_to_describe as bjobs_msg_to_describe
from torchx_sched_lsf.queue.queries import bjobs_msg_to_list as bjobs_msg_to_list
from torchx_sched_lsf.queue.queries import bjobs_msg_to_log_file as bjobs_msg_to_log_file
from torchx_sched_lsf.queue.queries import find_rank0_host as find_rank0_host
from torchx_sched_lsf.queue.queries import (
    find_rank0_host_from_bhosts_stdout as find_rank0_host_from_bhosts_stdout,
)
from torchx_sched_lsf.request import LsfBsub as LsfBsub
from torchx_sched_lsf.request import get_bsub as get_bsub
from torchx_sched_lsf.request import get_command as get_command
from torchx_sched_lsf.request import get_docker_command as get_docker_command
from torchx_sched_lsf.request import get_submit_script as get_submit_script
from torchx_sched_lsf.states import JOB_STATE as JOB_STATE
from torchx_sched_lsf.states import get_job_state as get_job_state
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo, Role
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.features import No

if TYPE_CHECKING:
    from torchx_sched_lsf.logs import LsfLogs
    from torchx_sched_lsf.queue.arrays import LsfArrays

# Maximum age of a cached result of bjobs for an array, in seconds. Callers usually describe the
# elements of an array one after the other; the cache lets them share one query.
_MAX_AGE_SECONDS = 2.0


class LsfScheduler(ClusterScheduler[LsfOpts, Entry]):
    """A scheduler that runs apps as LSF jobs, with LSF's own commands.

    Each replica is a separate job, named ``<app id>-<role>-<replica>``. Replica 0 of the first role
    starts first. When a replica has failed and has no retries left, the other jobs of the app are
    killed.

    Docker or Apptainer runs the role's image. A role without an image, or with a directory as its
    image, runs without a container. The logs are in ``jobdir`` (default: the current directory).
    The app's record, in which the replicas report how they ended, is in the same directory.

    Args:
        session_name: Name of the session.
        timeout: How long one LSF command may take, in seconds.
        patience: How long to retry while LSF is unreachable, in seconds.
        host: The machine with LSF's commands and the jobs' files; by default this machine.
    """

    features = replace(
        ClusterScheduler.features,
        dependencies=True,
        exec=No("the command battach of LSF only opens an interactive shell"),
        arrays=True,
        array_limit=True,
        mass_cancel=True,
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
        self._lsf = Lsf(host, timeout, patience)
        self._array_jobs: CoalescingCache[dict[str, Job]] = CoalescingCache()
        super().__init__("lsf", session_name, self._lsf.host, Index())

    # Methods that submit apps.

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Plan the copy of the workspace to ``jobdir``."""
        super().caching_build_workspace_and_update_role(role, _with_job_dir(cfg), build_cache)

    def build_pending(self, job: Any, cfg: Mapping[str, CfgVal] | None = None) -> dict[str, str]:
        """Build the workspaces that a dry run planned."""
        if cfg is None and isinstance(job, AppDryRunInfo):
            cfg = job.cfg
        return super().build_pending(job, _with_job_dir(cfg or {}))

    def _request_problems(self, app: AppDef, cfg: LsfOpts) -> Iterable[str]:
        return option_problems(cfg)

    def _submit_dryrun(self, app: AppDef, cfg: LsfOpts) -> AppDryRunInfo[LsfBsub]:
        jobdir = cfg.jobdir or cfg.get("job_dir")
        folder = self._host.resolve(str(jobdir)) if jobdir else None
        request = LsfBsub(folder, make_app_id(app.name), app, cfg)
        request.materialize()  # report invalid arguments in the dry run
        return AppDryRunInfo(request, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[LsfBsub]) -> str:
        """Build the workspaces that the dry run planned, and submit a job for each replica.

        If LSF refuses a job, or if Ctrl-C interrupts the submission, the jobs submitted before are
        killed. If the client is killed, the submission completes all the same, unless
        the script that calls bsub had not started.

        Raises:
            LsfError: LSF refuses a job, or is unreachable.
            RequestError: The app's directory is not writable.
            WorkspaceError: A workspace cannot be copied.
        """
        from torchx_sched_lsf.submit import submit

        self.build_pending(dryrun_info)
        request = dryrun_info.request
        app_id = request.app_id
        if self._index.get(app_id) is not None:  # this dry run was submitted before
            app_id = make_app_id(request.app.name)
        submit(self._lsf, request, app_id, request.app.name, self._index)
        return app_id

    @property
    def app_arrays(self) -> LsfArrays:
        """Submits and cancels many apps at once, as elements of arrays."""
        from torchx_sched_lsf.queue.arrays import LsfArrays

        return LsfArrays(self)

    def with_dependency(
        self, cfg: Mapping[str, CfgVal], app_id: str, outcome: str
    ) -> Mapping[str, CfgVal] | None:
        """Add a dependency on another app to the options, and return the new options.

        Return None if that app is not in the index, is an array as a whole, or is not completely
        submitted.
        """
        entry = self._entry(app_id)
        if entry is None or entry.names or not entry.complete or not entry.jobs:
            return None
        conditions = {
            name: [f"{name}({job_id})" for job_id in entry.jobs]
            for name in ("done", "ended", "exit")
        }
        condition = " && ".join(conditions["done" if outcome == "ok" else "ended"])
        if outcome == "failed":
            condition = f"{condition} && ({' || '.join(conditions['exit'])})"
        given = cfg.get("dependency")
        return {**cfg, "dependency": f"({given}) && {condition}" if given else condition}

    # Methods for submitted apps.

    def _entry(self, app_id: str) -> Entry | None:
        """Return the index entry of an app; for an element, first read its array's job id.

        Return None if the index has no entry.
        """
        from torchx_sched_lsf.describe import refresh

        array_id, index = split_element(app_id)
        array = self._index.get(array_id) if index else None
        if array is not None:
            refresh(self._lsf, self._index, array)
        return self._index.get(app_id)

    def _find_jobs(self, entry: Entry) -> Mapping[str, Job]:
        """Return the jobs of an app, by job id; an element of an array uses a short-lived cache."""
        from torchx_sched_lsf.describe import find_jobs

        job_ids = entry.jobs
        if not split_element(entry.app_id)[1] or not job_ids:
            return find_jobs(self._lsf, entry)
        number = job_ids[0].partition("[")[0]
        query = partial(jobs_by_id, self._lsf, [number])
        return self._array_jobs.get(number, lambda _: query(), _MAX_AGE_SECONDS) or {}

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the app does not exist.

        The description combines the app's record and the output of bjobs.

        Raises:
            LsfError: LSF cannot be queried, and not all replicas have recorded their end.
        """
        from torchx_sched_lsf.describe import describe, describe_by_names

        entry = self._entry(app_id)
        if entry is not None and entry.deleted:
            return None
        if entry is not None and entry.names:
            state, message = array_state(one.state for one in self._describe_elements(entry))
            return DescribeAppResponse(app_id, state, msg=message)
        if entry is not None:
            return describe(self._lsf, self._index, entry, self._find_jobs)
        if not _is_app_id(app_id):
            return None
        jobs = jobs_of_app(self._lsf, app_id)
        explanations = explain_jobs(self._lsf, [job.job_id for job in jobs])
        return describe_by_names(app_id, jobs, explanations)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's apps.

        The list contains the apps submitted with the current ``$TORCHX_HOME``, and other apps of
        TorchX that LSF still lists.

        Raises:
            LsfError: LSF cannot be queried.
        """
        from torchx_kit.jobs.descriptions import listed as listed_app
        from torchx_sched_lsf.describe import describe_all, jobs_by_name, set_times_of_jobs

        entries = {entry.app_id: entry for entry in self._index.entries()}
        listed = all_jobs(self._lsf)
        existing = self._existing(entries, listed)
        descriptions = describe_all(
            self._lsf,
            self._index,
            existing,
            jobs_by_name(existing, listed),
            pending_reasons=False,
        )
        apps = [listed_app(descriptions[entry.app_id], name=entry.name) for entry in existing]
        others: dict[str, list[Job]] = {}
        for job in listed:
            app_id = app_of_job(job.name)
            if app_id and split_element(app_id)[0] not in entries:
                others.setdefault(app_id, []).append(job)
        explanations = explain_jobs(self._lsf, [j.job_id for jobs in others.values() for j in jobs])
        for app_id, jobs in others.items():
            state = combined_state([get_job_state(job.stat, "") for job in jobs])
            app = ListAppResponse(app_id, state)
            known = [explanations[j.job_id] for j in jobs if j.job_id in explanations]
            set_times_of_jobs(app, known)
            apps.append(app)
        return apps

    def _existing(self, entries: Mapping[str, Entry], listed: Iterable[Job]) -> Sequence[Entry]:
        """Return the apps in the index that were not deleted, with elements instead of arrays.

        Leave out an app whose submission was interrupted or cancelled before the first job. A sweep
        then submits its element again.

        Args:
            entries: The entries in the index, by app id.
            listed: The jobs that LSF lists.
        """
        from torchx_sched_lsf.describe import refresh
        from torchx_sched_lsf.queue.arrays import elements

        with_jobs = {split_element(app_of_job(job.name))[0] for job in listed}
        found = []
        for app_id, entry in entries.items():
            if entry.deleted or split_element(app_id)[1]:
                continue
            refresh(self._lsf, self._index, entry)
            if not entry.cancelled or entry.jobs or app_id in with_jobs:
                found += elements(entry, entries) if entry.names else [entry]
        return found

    def _describe_elements(self, array: Entry) -> Iterable[DescribeAppResponse]:
        """Return the descriptions of the elements of an array that were not deleted."""
        from torchx_sched_lsf.describe import describe_all, find_jobs, jobs_by_name, refresh
        from torchx_sched_lsf.queue.arrays import elements

        refresh(self._lsf, self._index, array)
        jobs = find_jobs(self._lsf, array)
        own = {entry.app_id: entry for entry in self._index.entries(f"{array.app_id}.")}
        found = elements(array, own)
        known = jobs_by_name(found, jobs.values())
        return describe_all(self._lsf, self._index, found, known, pending_reasons=False).values()

    def _cancel_existing(self, app_id: str) -> None:
        from torchx_sched_lsf.describe import find_jobs, refresh

        entry = self._entry(app_id)
        if entry is None:
            jobs = jobs_of_app(self._lsf, app_id) if _is_app_id(app_id) else []
        elif entry.final is not None:
            return
        elif entry.names:
            self._cancel_array(entry)
            return
        elif split_element(app_id)[1]:
            self.app_arrays.cancel([app_id])
            return
        else:
            refresh(self._lsf, self._index, entry)
            jobs = list(find_jobs(self._lsf, entry).values())
            known = set(entry.jobs)
            jobs = [job for job in jobs if job.job_id in known]
        if entry is not None and (not entry.complete or any(not job.has_ended for job in jobs)):
            self._mark_as_cancelled(entry)
        kill_jobs(self._lsf, jobs)

    def _mark_as_cancelled(self, entry: Entry) -> None:
        entry.cancelled = True
        self._index.put(entry)
        LsfRecord(self._host, entry).cancel()  # also stops a submission that has not ended

    def _cancel_array(self, array: Entry) -> None:
        """Cancel the elements that have not ended, and stop a submission that has not ended."""
        described = self._describe_elements(array)  # also saves the states of ended elements
        unfinished = [one.app_id for one in described if not is_terminal(one.state)]
        if not array.complete:
            self._mark_as_cancelled(array)
        self.app_arrays.cancel(unfinished)

    def withdraw(self, app_id: str) -> bool:
        """Cancel an app unless it has started; see :meth:`Scheduler.withdraw`.

        Only the head is held: the job of replica 0 of the first role. LSF starts the other jobs of
        the app after the head has started.

        Raises:
            LsfError: LSF cannot be reached, or the submission of the app has not ended.
            RequestError: The app is an array, or was submitted with another ``$TORCHX_HOME``.
        """
        from torchx_sched_lsf.describe import ACTIVE, find_jobs, refresh
        from torchx_sched_lsf.queue.withdrawal import hold_unless_started, release

        entry = self._entry(app_id)
        if entry is None or entry.names:
            reason = "an array" if entry else "not in this user's index of LSF apps"
            raise RequestError(
                f"'{app_id}' is {reason}; only one app that this user submitted can be withdrawn"
            )
        refresh(self._lsf, self._index, entry)
        if not entry.complete and time.time() < entry.submission_deadline:
            raise LsfError(f"the submission of {app_id} has not ended; try again")
        record = LsfRecord(self._host, entry)
        head = entry.roles[0].jobs[0]
        if entry.final is None and head and not entry.deleted:
            may_be_held = record.begin_withdrawal()
            is_held = not entry.has_report(self._host) and hold_unless_started(self._lsf, head)
            jobs = list(find_jobs(self._lsf, entry).values())
            others = [job for job in jobs if job.job_id in entry.jobs and job.job_id != head]
            # The head may have run and been requeued before it was held.
            has_started = entry.has_report(self._host) or any(job.stat in ACTIVE for job in others)
            if is_held and not has_started:
                self._mark_as_cancelled(entry)
                # The end of the head would let the other jobs start, so these jobs end first.
                kill_jobs(self._lsf, others)
                kill_jobs(self._lsf, [Job(head, "PSUSP")])
                record.end_withdrawal()
                self._array_jobs.forget(head.partition("[")[0])
                return True
            if is_held or may_be_held:
                release(self._lsf, head)
            record.end_withdrawal()
        description = self.describe(app_id)
        is_cancelled = description is not None and description.state == AppState.CANCELLED
        return is_cancelled and not entry.has_report(self._host)

    @cached_property
    def app_logs(self) -> LsfLogs:
        """Reads the logs of apps."""
        from torchx_sched_lsf.logs import LsfLogs

        return LsfLogs(self)


def create_scheduler(session_name: str, **kwargs: Any) -> LsfScheduler:
    """Return the scheduler.

    Args:
        session_name: Name of the session.
        kwargs: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
    """
    return LsfScheduler(session_name, **client_arguments(kwargs))


def _is_app_id(app_id: str) -> bool:
    """Return whether an id has the form of :func:`make_app_id`, so that no other job matches."""
    return app_of_job(job_name(app_id, "role", 0)) == app_id


def _with_job_dir(cfg: Mapping[str, CfgVal]) -> Mapping[str, CfgVal]:
    """Copy the option ``jobdir`` to ``job_dir``, the name that the workspace builder reads."""
    jobdir = cfg.get("jobdir")
    return {**cfg, "job_dir": jobdir} if jobdir else cfg
