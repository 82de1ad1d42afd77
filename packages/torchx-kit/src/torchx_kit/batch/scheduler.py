"""The scheduler class for batch systems."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torchx_kit.batch.entries import Entry, Index
from torchx_kit.batch.names import JobName, make_app_id
from torchx_kit.batch.request import BatchRequest
from torchx_kit.batch.system import BatchSystem
from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.arrays import array_state
from torchx_kit.jobs.attempts import resume_dir_problems
from torchx_kit.jobs.records import JobRecord
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.request_checks import RequestRules

if TYPE_CHECKING:
    from typing_extensions import Self

    from torchx_kit.batch.arrays import BatchArrays
    from torchx_kit.batch.states import JobInfo
    from torchx_kit.jobs.logs import FileLogs
    from torchx_kit.workspace.builder import WorkspaceBuilder

Opts = TypeVar("Opts", bound=Mapping[str, Any])

# Maximum age of a cached listing of an array, in seconds. Callers usually describe the elements of
# an array one after the other; the cache lets them share one query. So do the search for a job that
# the index lacks, and its description.
_MAX_AGE_SECONDS = 2.0


class BatchScheduler(BuilderWorkspaceMixin, Scheduler[Opts]):
    """A scheduler for a batch system, with an index of the submitted apps on this machine.

    A subclass sets the class variables.

    Args:
        session_name: Name of the session.
        timeout: How long one command of the system may take, in seconds.
        patience: How long to retry while the system is unreachable, in seconds.
        host: The machine with the system's commands and the jobs' files; by default this machine.
    """

    # A role without a resource gets the queue's defaults.
    request_rules = RequestRules(needs_resource=False, needs_entrypoint=True)
    features = SchedulerFeatures(
        secrets=True,
        setup=True,
        time_limit=True,
        requeue=True,
        logs=True,
        since_until=No("log files contain no times of lines"),
        last=True,
        partial=True,
        log_order=No("log files do not show which line of two files came first"),
        hosts=True,
        arrays=True,
        array_limit=True,
        mass_cancel=True,
        mass_delete=True,
    )
    #: The batch system.
    system_type: ClassVar[type[BatchSystem]]
    #: The class of the requests.
    request_type: ClassVar[type[BatchRequest]] = BatchRequest
    #: Whether jobs in containers can use the copy of a workspace.
    trees_in_containers: ClassVar[bool] = False
    #: The directory, relative to that of the jobs, with copies of workspaces on this machine; empty
    #: if jobs on this machine run in their directory.
    local_trees: ClassVar[str] = ""
    #: Lines of ignore rules for the files that jobs write, which are not copied.
    files_of_jobs: ClassVar[str] = ""
    #: The class of the entries in the index.
    entry_type: ClassVar[type[Entry]] = Entry

    def __init__(
        self,
        session_name: str,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        host: Host | None = None,
    ) -> None:
        self.system = self.system_type(host, timeout, patience)
        self._listings: CoalescingCache[dict[str, JobInfo]] = CoalescingCache()
        self._host = self.system.host
        self._index = Index(self.system_type.backend, self.entry_type, self._host.name)
        super().__init__(self.system_type.backend, session_name)

    @classmethod
    def create(cls, session_name: str, **params: Any) -> Self:
        """Return the scheduler; this is the factory of a plugin.

        ``get_runner`` passes the same parameters to the factories of all schedulers, so a factory
        ignores the parameters that it does not know.

        Args:
            session_name: Name of the session.
            params: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
        """
        known = {key: params[key] for key in ("timeout", "patience", "host") if key in params}
        return cls(session_name, **known)

    # Methods that submit apps.

    @cached_property
    def _builders(self) -> dict[str, WorkspaceBuilder]:
        builders = super()._builders
        if self._host.name or self.local_trees:
            from torchx_kit.workspace.dir_builder import DirBuilder
            from torchx_kit.workspace.host_dir import HostDirBuilder

            if type(builders.get("dir")) is DirBuilder:  # no plugin has replaced the builder
                builders["dir"] = HostDirBuilder(
                    self._host, self.trees_in_containers, self.local_trees, self.files_of_jobs
                )
        return builders

    def _host_path(self, image: str) -> str:
        """Return the path of a planned tree on the host; return other images unchanged."""
        from torchx_kit.workspace.host_dir import HostDirBuilder, is_tree

        builder = self._builders.get("dir") if is_tree(image) else None
        return builder.path(image) if isinstance(builder, HostDirBuilder) else image

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[Any]:
        if isinstance(self._host, LocalHost):
            for problem in resume_dir_problems(cfg.get("resume_dir")):
                raise RequestError(problem)
        folder = str(cfg.get(self.system.folder_option) or cfg.get("job_dir") or "")
        request = self.request_type(
            self.system, make_app_id(app.name), app, cfg, folder and self._host.resolve(folder)
        )
        request.materialize()  # report invalid arguments in the dry run
        return AppDryRunInfo(request, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Build the workspaces that the dry run planned, and submit the app's jobs.

        If there are several jobs, they are held until the system has accepted all of them. If the
        system refuses a job, or if Ctrl-C interrupts the submission, the jobs submitted before are
        deleted.

        Raises:
            RefusedError: The batch system refuses a value of the request.
            BatchError: The batch system refuses a job, or is unreachable.
            RequestError: The app's directory is not writable.
            WorkspaceError: A workspace cannot be copied.
        """
        self.build_pending(dryrun_info)
        request = self._request(dryrun_info)
        if self._index.get(request.app_id) is not None:  # this dry run was submitted before
            request = replace(request, app_id=make_app_id(request.app.name))
        return self._submit(request).app_id

    def _request(self, info: AppDryRunInfo[Any]) -> Any:
        """Return the :class:`BatchRequest` of a dry run, with the paths of trees on the host."""
        request: BatchRequest = info.request
        app = request.app
        roles = [replace(role, image=self._host_path(role.image)) for role in app.roles]
        return replace(request, app=replace(app, roles=roles))

    def _submit(self, request: Any) -> Entry:
        """Submit an app or an array of apps."""
        from torchx_kit.batch.submit import submit

        return submit(request, self._index)

    def has_only_local_files(self, info: AppDryRunInfo[Any]) -> bool:
        """Return True for an app without containers, unless the host is another machine.

        Args:
            info: The app's dry run.
        """
        return not self._host.name and not self._has_containers(info)

    def _has_containers(self, info: AppDryRunInfo[Any]) -> bool:
        """Return whether a role of an app runs in a container."""
        request: BatchRequest = info.request
        return any(request.container(role) != "none" for role in request.app.roles)

    @property
    def app_arrays(self) -> BatchArrays:
        """Submits and cancels many apps at once, as tasks of arrays."""
        from torchx_kit.batch.arrays import BatchArrays

        return BatchArrays(self)

    # Methods for submitted apps.

    def exists(self, app_id: str) -> bool:
        """Return True if the app exists; query the batch system only if the index lacks the app."""
        entry = self._index.get(app_id)
        return not entry.deleted if entry is not None else self.describe(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """End an app. An app that has ended or does not exist is not an error."""
        if self.exists(app_id):
            self._cancel_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Cancel an app, remove its logs and its record, and hide it from lists."""
        self._cancel_existing(app_id)
        description = self.describe(app_id)
        entry = self._entry(app_id)
        if entry is not None:
            if not entry.submitted:
                entry = self.entry_type(entry.app_id, "", "", "")
            self._host.remove_files(entry.log_files())
            # The jobs of an app that is still ending write to its record.
            if entry.record and (description is None or is_terminal(description.state)):
                JobRecord(self._host, entry.record).remove()
            entry.deleted = True
            self._index.put(entry)

    @cached_property
    def app_logs(self) -> FileLogs[Any]:
        """Reads the logs of apps."""
        from torchx_kit.jobs.logs import FileLogs

        return FileLogs(self)

    def _entry(self, app_id: str) -> Entry | None:
        """Return the entry of an app, after an interrupted submission has been ended.

        The entry of an app that the index lacks has no time of the submission. None means that the
        app does not exist.
        """
        from torchx_kit.batch.submit import finish_submission

        array_id, index = self.entry_type.split_id(app_id)
        entry = self._index.get(array_id)
        if entry is not None:
            finished = finish_submission(self.system, self._index, entry)
            entry = self._index.get(app_id) if index is not None else finished
        return entry or self._other_entry(app_id)

    def _other_entry(self, app_id: str) -> Entry | None:
        """Return an entry for an app that the index lacks; None if no job in the queue is its."""
        from torchx_kit.batch.describe import entries_by_names

        if JobName.parse(f"{Entry.split_id(app_id)[0]}-role") is None:
            return None
        return entries_by_names(self.system, self.system.listing(None)[0].values()).get(app_id)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the app does not exist.

        The description combines the listing of the queue, what the batch system knows of ended
        jobs, and the app's record.

        Raises:
            BatchError: The system cannot be queried, and not all replicas have recorded their end.
        """
        entry = self._entry(app_id)
        return None if entry is None else self._described(entry)

    def _described(self, entry: Entry) -> DescribeAppResponse | None:
        """Return the description of an app or an array; None if it was deleted."""
        if entry.deleted:
            return None
        if entry.names:
            elements = self._described_elements(entry)
            state, message = array_state(one.state for one in elements)
            return DescribeAppResponse(entry.app_id, state, msg=message)
        is_shared = entry.element is not None or not entry.submitted
        jobs = self._listing(entry) if is_shared and entry.complete else None
        return self._describe_all([entry], jobs=jobs)[entry.app_id]

    def _describe_all(
        self, entries: Collection[Entry], **options: Any
    ) -> dict[str, DescribeAppResponse]:
        """Return the descriptions of apps of the index; see :func:`.describe.describe_all`."""
        from torchx_kit.batch.describe import describe_all

        return describe_all(self.system, self._index, entries, **options)

    def _listing(self, entry: Entry) -> Mapping[str, JobInfo]:
        """Return the jobs of an app or array, from the cache if the listing is not old."""
        found = self._listings.get(
            entry.jobs[0], lambda _: self.system.listing(entry.jobs)[0], _MAX_AGE_SECONDS
        )
        return found or {}

    def _described_elements(self, array: Entry) -> Iterable[DescribeAppResponse]:
        """Return the descriptions of the elements of an array that were not deleted."""
        elements = array.elements(self._index.own_elements(array))
        return self._describe_all(elements, pending_reasons=False).values()

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's apps.

        The list contains the apps submitted with the current ``$TORCHX_HOME``, and other apps of
        TorchX in the queue, without apps whose submission was interrupted before the first job.

        Raises:
            BatchError: The batch system cannot be queried.
        """
        from torchx_kit.batch.submit import finish_submission
        from torchx_kit.jobs.descriptions import listed

        entries = {entry.app_id: entry for entry in self._index.entries()}
        existing: list[Entry] = []
        for entry in entries.values():
            if entry.deleted or entry.element is not None:
                continue
            found = finish_submission(self.system, self._index, entry)
            if not found.interrupted:
                existing += found.elements(entries) if found.names else [found]
        jobs = self._jobs_to_list()
        descriptions = self._describe_all(existing, jobs=jobs, pending_reasons=False)
        apps = [listed(descriptions[entry.app_id], name=entry.name) for entry in existing]
        known = {*entries, *(entry.app_id for entry in existing)}
        return [*apps, *self._other_apps(jobs, known)]

    def _jobs_to_list(self) -> dict[str, JobInfo]:
        """Return the jobs that :meth:`list` shows, by id."""
        return self.system.listing(None)[0]

    def _other_apps(
        self, jobs: Mapping[str, JobInfo], known: Set[str]
    ) -> Sequence[ListAppResponse]:
        """Return the apps of jobs that the index lacks.

        Args:
            jobs: The jobs by id.
            known: The ids of the apps and arrays in the index.
        """
        from torchx_kit.batch.describe import entries_by_names
        from torchx_kit.jobs.descriptions import listed

        others = [
            job
            for job in jobs.values()
            if (name := JobName.parse(job.name)) and name.app_id not in known
        ]
        entries = entries_by_names(self.system, others).values()
        apps = self._describe_all(entries, jobs=jobs, pending_reasons=False)
        return [*map(listed, apps.values())]

    def _cancel_existing(self, app_id: str) -> None:
        entry = self._entry(app_id)
        if entry is None or entry.final is not None:
            return
        if entry.names and entry.complete:
            elements = self._described_elements(entry)  # also saves the states of ended elements
            self.app_arrays.cancel([one.app_id for one in elements if not is_terminal(one.state)])
        elif entry.element is not None:
            self.app_arrays.cancel([app_id])
        else:
            if not entry.complete:
                self.system.add_job_ids([entry], self.system.listing(None)[0].values())
            described = self.describe(app_id)
            if entry.submitted and described is not None and not is_terminal(described.state):
                self._mark_as_cancelled(entry)
            self.system.cancel(entry.jobs)

    def _mark_as_cancelled(self, entry: Entry) -> None:
        entry.cancelled = True
        self._index.put(entry)
        if entry.jobs:
            self._listings.forget(entry.jobs[0])
