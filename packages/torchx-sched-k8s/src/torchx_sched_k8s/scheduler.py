"""The scheduler ``kubernetes``, which runs apps as pods of a Kubernetes cluster.

The option ``job_api`` selects the objects of an app: an Indexed Job for each role and a headless
Service (``batch``), a JobSet (``jobset``), or a Volcano Job (``volcano``). An app's id is
``<namespace>:<name>``. If the app was submitted with the option ``context``, the id is
``<namespace>:<name>@<context>``. All objects of the app have a label with its name. Nothing is
stored outside the cluster, so every user with the rights to the objects can manage the app.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.jobs.arrays import element_id, split_element_id, submit_one_by_one
from torchx_kit.jobs.withdrawal import WithdrawsApps
from torchx_kit.logs.lines import filter_regex as filter_regex
from torchx_kit.logs.lines import split_lines as split_lines
from torchx_kit.names.ids import make_unique as make_unique
from torchx_kit.names.limits import DNS_LABEL
from torchx_kit.role_checks import check_replica
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_k8s.cluster.labels import ANNOTATION_ISTIO_SIDECAR as ANNOTATION_ISTIO_SIDECAR
from torchx_sched_k8s.cluster.labels import (
    COMPLETION_INDEX,
    VOLCANO_INDEX,
    annotations_of,
    selector,
)
from torchx_sched_k8s.cluster.labels import LABEL_APP_NAME as LABEL_APP_NAME
from torchx_sched_k8s.cluster.labels import LABEL_INSTANCE_TYPE as LABEL_INSTANCE_TYPE
from torchx_sched_k8s.cluster.labels import LABEL_KUBE_APP_NAME as LABEL_KUBE_APP_NAME
from torchx_sched_k8s.cluster.labels import LABEL_ORGANIZATION as LABEL_ORGANIZATION
from torchx_sched_k8s.cluster.labels import LABEL_REPLICA_ID as LABEL_REPLICA_ID
from torchx_sched_k8s.cluster.labels import LABEL_ROLE_INDEX as LABEL_ROLE_INDEX
from torchx_sched_k8s.cluster.labels import LABEL_ROLE_NAME as LABEL_ROLE_NAME
from torchx_sched_k8s.cluster.labels import LABEL_UNIQUE_NAME as LABEL_UNIQUE_NAME
from torchx_sched_k8s.cluster.labels import LABEL_VERSION as LABEL_VERSION
from torchx_sched_k8s.cluster.labels import pod_labels as pod_labels
from torchx_sched_k8s.cluster.names import normalize_str as normalize_str
from torchx_sched_k8s.legacy_names import BLUE as BLUE
from torchx_sched_k8s.legacy_names import ENDC as ENDC
from torchx_sched_k8s.legacy_names import JOB_STATE as JOB_STATE
from torchx_sched_k8s.legacy_names import TASK_STATE as TASK_STATE
from torchx_sched_k8s.legacy_names import _apply_pod_overlay as _apply_pod_overlay
from torchx_sched_k8s.legacy_names import app_to_resource as app_to_resource
from torchx_sched_k8s.legacy_names import prefix_container_name as prefix_container_name
from torchx_sched_k8s.legacy_names import role_to_pod as role_to_pod
from torchx_sched_k8s.legacy_names import sanitize_for_serialization as sanitize_for_serialization
from torchx_sched_k8s.options import RESERVED_MEMMB as RESERVED_MEMMB
from torchx_sched_k8s.options import RESERVED_MILLICPU as RESERVED_MILLICPU
from torchx_sched_k8s.options import SUBDOMAIN
from torchx_sched_k8s.options import KubernetesOpts as KubernetesOpts
from torchx_sched_k8s.request.arrays import ANNOTATION_NAMES
from torchx_sched_k8s.request.checks import RULES, request_problems
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob as KubernetesJob
from torchx_sched_k8s.request.kubernetes_job import check_size, format_request, make_request
from torchx_sched_k8s.request.pods import PLACEHOLDER_FIELD_PATH as PLACEHOLDER_FIELD_PATH
from torchx_sched_k8s.request.retries import RETRY_POLICIES as RETRY_POLICIES
from torchx_sched_k8s.status.pending_warnings import PendingWarnings
from torchx_specs.errors import CapacityError, UnknownAppException
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import RetryPolicy as RetryPolicy
from torchx_specs.model.app import Role as Role
from torchx_specs.model.dryrun import AppDryRunInfo as AppDryRunInfo
from torchx_specs.model.mounts import BindMount as BindMount
from torchx_specs.model.mounts import DeviceMount as DeviceMount
from torchx_specs.model.mounts import VolumeMount as VolumeMount
from torchx_specs.model.status import AppState as AppState
from torchx_specs.model.status import ReplicaState as ReplicaState
from torchx_specs.model.status import ReplicaStatus as ReplicaStatus
from torchx_specs.model.status import RoleStatus as RoleStatus
from torchx_specs.model.status import is_terminal
from torchx_specs.model.templates import macros as macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.options.structured import StructuredOpts as StructuredOpts
from torchx_specs.overlays import apply_overlay as apply_overlay
from torchx_specs.overlays import get_overlay as get_overlay
from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
from torchx_specs.schedulers.api import Scheduler as Scheduler
from torchx_specs.schedulers.api import Stream as Stream
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.sessions import ReplicaNotRunningError

if TYPE_CHECKING:
    from socket import socket

    from kubernetes.client import ApiClient

    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.request.arrays import Element
    from torchx_sched_k8s.status.pod_states import Pod
    from torchx_sched_k8s.status.views import AppView, RoleView
    from torchx_specs.schedulers.sessions import Session, TerminalSize

#: The maximum age, in seconds, of a cached AppView that log readers and sessions use again.
_RECENT_SECONDS = 1.0

#: Separates the context from the rest of an app's id. Names in a cluster cannot contain it.
_CONTEXT_SIGN = "@"

log = logging.getLogger(__name__)

Opts = KubernetesOpts


def create_scheduler(
    session_name: str, client: ApiClient | None = None, docker_client: Any = None, **kwargs: Any
) -> KubernetesScheduler:
    """Return the scheduler; ``kwargs`` are options of other schedulers and are ignored."""
    return KubernetesScheduler(session_name, client, docker_client)


class KubernetesScheduler(WithdrawsApps, BuilderWorkspaceMixin, Scheduler[KubernetesOpts]):
    """Runs apps as pods of a Kubernetes cluster.

    The kubeconfig in ``KUBECONFIG`` names the cluster. Without this variable, a process that runs
    in a cluster uses that cluster; any other process uses ``~/.kube/config``.

    Args:
        session_name: Name of the session; it is part of the apps' handles.
        client: A client of the kubernetes library; by default it is made from the environment.
        docker_client: Ignored; kept for compatibility.
    """

    resolves_secrets = True
    request_rules = RULES
    lacks: ClassVar[Mapping[str, str]] = {
        "streams": "the log of a container is one, unless PodLogsQuerySplitStreams is on",
        "not_utf8": "the API is JSON; such values are refused before submission",
    }
    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})

    def __init__(
        self, session_name: str, client: ApiClient | None = None, docker_client: Any = None
    ) -> None:
        super().__init__("kubernetes", session_name)
        self._client = client
        self._clusters: dict[str | None, Cluster] = {}
        self._context: str | None = None
        self._views: CoalescingCache[AppView] = CoalescingCache()
        self._described: CoalescingCache[DescribeAppResponse] = CoalescingCache()
        self._pending_warnings = PendingWarnings()
        # Pods and ports that have accepted a connection; `open_port` need not wait for a refusal.
        self._open_ports: set[tuple[str, int]] = set()

    @property
    def _cluster(self) -> Cluster:
        return self._cluster_of(self._context)

    def _cluster_of(self, context: str | None) -> Cluster:
        found = self._clusters.get(context)
        if found is None:
            from torchx_sched_k8s.cluster.client import Cluster

            found = self._clusters.setdefault(context, Cluster(self._client, context))
        return found

    def _cluster_of_app(self, app_id: str) -> Cluster:
        """Return the cluster of the context in an app's id.

        If the id contains no context, use the context of the last submission or list; without one,
        the current context of the kubeconfig.
        """
        context = context_of(app_id)
        return self._cluster if context is None else self._cluster_of(context)

    def close(self) -> None:
        """Close the connections to all clusters. Apps continue to run."""
        super().close()
        clusters, self._clusters = self._clusters, {}
        for cluster in list(clusters.values()):
            cluster.close()

    # Methods that make the request.

    def _request_problems(self, app: AppDef, cfg: KubernetesOpts) -> Iterable[str]:
        return request_problems(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: KubernetesOpts) -> AppDryRunInfo[KubernetesJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    # Methods that submit apps.

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> str:
        """Create all objects of an app, or none, and return the app's id.

        Raises:
            BackendError: The cluster does not answer, or refuses the request.
            RequestError: An object is too large, or the cluster rejects the request as invalid.
            WorkspaceError: The workspace cannot be built.
        """
        from torchx_sched_k8s.submit import submit

        self.build_pending(dryrun_info)
        cfg = dryrun_info.cfg or {}
        job = dryrun_info.request
        check_size(job)
        self._remember_context(cfg)
        app_id = f"{job.namespace}:{job.name}{_suffix(cfg)}"
        check_first = cfg.get("validate_spec") is not False
        submit(self._cluster, job, check_first=check_first, app_id=app_id)
        return app_id

    def submit_many(
        self,
        dryrun_infos: Iterable[AppDryRunInfo[KubernetesJob]],
        *,
        max_parallel: int | None = None,
    ) -> Iterator[str]:
        """Submit several requests, and yield the id of each app once it is submitted.

        If each app has one replica, and only arguments and environment variables differ, the apps
        become indexes of one Indexed Job, or of several Jobs if there are many apps. Their image
        must contain ``sh``. Other requests, and requests with the option ``array=False``, are
        submitted one after another. So are all requests if the user may not create ConfigMaps, or
        if the cluster is older than Kubernetes 1.29.

        Args:
            dryrun_infos: The requests.
            max_parallel: How many apps may run at the same time (``parallelism`` of the Jobs); None
                means all.

        Raises:
            BackendError: The cluster does not answer, or refuses a request.
            CapacityError: The apps need more Jobs than ``max_parallel``. The apps whose ids were
                not yielded were not submitted.
            RequestError: An object is too large, or the cluster rejects a request as invalid.
            WorkspaceError: A workspace cannot be built.
        """
        infos = list(dryrun_infos)
        found = self._elements(infos)
        if not found:
            yield from self._submit_single(infos, max_parallel)
            return
        from torchx_sched_k8s.cluster.errors import ApiError
        from torchx_sched_k8s.request.arrays import make_arrays
        from torchx_sched_k8s.submit import submit

        for info in infos:
            self.build_pending(info)
        cfg = infos[0].cfg or {}
        arrays = list(make_arrays(found, infos[0].request.namespace))
        shares = len(arrays) if max_parallel is None else min(len(arrays), max_parallel)
        done = 0
        for number, (job, count) in enumerate(arrays[:shares]):
            if max_parallel is not None:
                share = max_parallel // shares + (number < max_parallel % shares)
                job.objects[0]["spec"]["parallelism"] = min(count, share)
            check_size(job)
            try:
                submit(self._cluster, job, check_first=cfg.get("validate_spec") is not False)
            except ApiError as e:
                if e.status != 403 or "ConfigMap" not in str(e):
                    raise
                log.warning("%s; without this right, each app is a Job of its own", e)
                yield from self._submit_single(infos[done:], max_parallel)
                return
            for index in range(count):
                yield f"{job.namespace}:{element_id(job.name, index)}{_suffix(cfg)}"
            done += count
        if shares < len(arrays):
            raise _too_many_jobs(len(infos) - done, max_parallel)

    def _submit_single(
        self, infos: Sequence[AppDryRunInfo[KubernetesJob]], max_parallel: int | None
    ) -> Iterator[str]:
        """Submit at most ``max_parallel`` apps one by one; if any are left, raise CapacityError."""
        yield from submit_one_by_one(super().submit_many, infos, max_parallel)

    def _elements(self, infos: Sequence[AppDryRunInfo[KubernetesJob]]) -> list[Element]:
        """Return requests as elements of arrays; an empty list if they cannot form an array."""
        from torchx_sched_k8s.request.arrays import OLDEST_VERSION, can_be_array, element_of

        cfgs = [info.cfg or {} for info in infos]
        if len(infos) < 2 or any(cfg != cfgs[0] for cfg in cfgs) or cfgs[0].get("array") is False:
            return []
        found: list[Element] = []
        for info in infos:
            element = element_of(info.request)
            if element is None or (found and element.common != found[0].common):
                return []
            found.append(element)
        self._remember_context(cfgs[0])
        if not can_be_array(found) or self._cluster.version() < OLDEST_VERSION:
            return []
        return found

    def _remember_context(self, cfg: Mapping[str, Any]) -> None:
        """Use the context of these options in later calls with ids that contain no context.

        If the options set ``retry_seconds``, apply it to the cluster of the context.
        """
        context = cfg.get("context")
        if context is not None:
            self._context = str(context)
        if cfg.get("retry_seconds") is not None:
            self._cluster.patience = float(cfg["retry_seconds"])

    # Methods for submitted apps.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if it does not exist."""
        if not parse_app_id(app_id)[1]:
            return None
        found = self._described.get(app_id, lambda _: self._describe(app_id))
        self._pending_warnings.observe(found)
        return found

    def _describe(self, app_id: str) -> DescribeAppResponse | None:
        from torchx_sched_k8s.status.describe import describe
        from torchx_sched_k8s.status.pod_states import list_pods

        namespace, name = parse_app_id(app_id)
        view = self._view(app_id)
        if view is None:
            return None
        cluster = self._cluster_of_app(app_id)
        array, index = split_element_id(name)
        if index is not None:
            from torchx_sched_k8s.arrays import pods_of_element

            pods = pods_of_element(cluster, namespace, array, index)
        else:
            pods = list_pods(
                cluster, namespace, selector(instance=name), f"list the pods of {name}"
            )
        found = describe(self._cluster_of_app(app_id), namespace, name, view, pods)
        found.app_id = app_id
        return found

    def describe_native(self, app_id: str) -> AppDryRunInfo[KubernetesJob] | None:
        """Return an app as the cluster stores it; None if the app does not exist.

        The result contains the app's Jobs, JobSet or AppWrapper, but no Service and no ConfigMap.
        """
        namespace, name = parse_app_id(app_id)
        view = self._view(app_id) if name else None
        if view is None:
            return None
        objects = [dict(one) for one in view.objects]
        resource: dict[str, Any] = objects[0]
        if view.api == "batch":
            for one in objects:
                # the API omits these fields in the items of a list
                one.setdefault("apiVersion", "batch/v1")
                one.setdefault("kind", "Job")
            resource = {"apiVersion": "v1", "kind": "List", "items": objects}
        return AppDryRunInfo(KubernetesJob({}, resource, namespace), format_request)

    def _view(self, app_id: str, max_age: float = 0.0) -> AppView | None:
        """Return an app's data, read without its pods; None if the app does not exist.

        Args:
            app_id: The app.
            max_age: Return cached data if it is at most this old, in seconds.
        """
        return self._views.get(app_id, lambda last: self._find(app_id, last), max_age)

    def _find(self, app_id: str, last: AppView | None) -> AppView | None:
        from torchx_sched_k8s.status.describe import find_app

        namespace, name = parse_app_id(app_id)
        array, index = split_element_id(name)
        if index is not None:
            from torchx_sched_k8s.arrays import find_element

            return find_element(self._cluster_of_app(app_id), namespace, array, index)
        return find_app(self._cluster_of_app(app_id), namespace, name, last.api if last else None)

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Block until an app's objects have changed since they were last read.

        Args:
            app_id: The app.
            timeout: The longest time to block, in seconds; None or more than 30 means 30.

        Returns:
            Always True: the caller need not wait before the next poll.
        """
        from torchx_sched_k8s.cluster.watch import wait_for_change

        closing = closing_of(self)
        namespace, _ = parse_app_id(app_id)
        view = self._views.last(app_id)
        wait_for_change(self._cluster_of_app(app_id), namespace, view, timeout, closing)
        return True

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of all sessions in a namespace, the newest first.

        Args:
            cfg: The options ``namespace`` and ``context``. A missing option has the same default as
                in a submission.
        """
        from torchx_kit.jobs.descriptions import set_times
        from torchx_sched_k8s.status.times import creation

        cfg = cfg or {}
        self._remember_context(cfg)
        namespace = str(cfg.get("namespace") or KubernetesOpts.namespace)
        apps = []
        for name, view in self._listed(namespace):
            app_id = f"{namespace}:{name}{_suffix(cfg)}"
            handle = f"{self.backend}://{self.session_name}/{app_id}"
            app = ListAppResponse(app_id, view.state, handle, view.name)
            has_started = view.state == AppState.RUNNING or is_terminal(view.state)
            started = view.started if has_started else None
            set_times(app, creation(view.objects), started=started, ended=view.ended)
            app.exit_code = 0 if view.state == AppState.SUCCEEDED else None
            apps.append(app)
        return apps

    def _listed(self, namespace: str) -> Iterator[tuple[str, AppView]]:
        """Yield the name and the data of each app; an array is replaced by its elements."""
        for view in self._list_views(namespace):
            if not any(ANNOTATION_NAMES in annotations_of(one) for one in view.objects[:1]):
                yield view.app_id, view
                continue
            from torchx_sched_k8s.arrays import list_elements

            for index, element in list_elements(self._cluster, namespace, view).items():
                yield element_id(view.app_id, index), element

    def _list_views(self, namespace: str) -> Iterable[AppView]:
        """Return the data of a namespace's apps."""
        from torchx_sched_k8s.status.list import list_apps

        return list_apps(self._cluster, namespace)

    def exists(self, app_id: str) -> bool:
        """Return whether the app exists; an app that has ended exists until it is deleted."""
        return bool(parse_app_id(app_id)[1]) and self._view(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """End an app. An app that is missing or has ended is not an error.

        The app's pods and their logs are deleted. The other objects stay, annotated as cancelled.
        """
        from torchx_sched_k8s import cancel

        namespace, name = parse_app_id(app_id)
        array, index = split_element_id(name)
        if index is not None:
            from torchx_sched_k8s.arrays import cancel_element

            cancel_element(self._cluster_of_app(app_id), namespace, array, index)
            self._views.forget(app_id)
            return
        view = self._view(app_id) if name else None
        if view is None or view.state == AppState.SUCCEEDED:
            return
        if is_terminal(view.state) and not cancel.has_unfinished_jobs(view):
            return
        cancel.cancel(self._cluster_of_app(app_id), namespace, view)
        self._views.forget(app_id)

    def _cancel_existing(self, app_id: str) -> None:
        self.cancel(app_id)

    def withdrawal_problem(self, cfg: Mapping[str, CfgVal]) -> str | None:
        """Return why an app with these options cannot be withdrawn; None if it can."""
        api = KubernetesOpts.from_cfg(cfg).api
        if api == "batch":
            return None
        return f"apps with job_api={api} cannot be withdrawn; use job_api=batch"

    def withdraw(self, app_id: str) -> bool:
        """Cancel an app that has never had a node, and return True.

        The app waits in Kueue's queue, or its only pod waits for a node. Return False and change
        nothing if the app may have started, has several pods, is missing, or is an element of an
        array.

        Raises:
            BackendError: The cluster does not answer.
        """
        from torchx_sched_k8s import cancel
        from torchx_sched_k8s.withdrawal import prevent_start

        namespace, name = parse_app_id(app_id)
        view = self._view(app_id) if name and split_element_id(name)[1] is None else None
        cluster = self._cluster_of_app(app_id)
        if view is None or not prevent_start(cluster, namespace, view):
            return False
        view = self._view(app_id)  # the withdrawal has changed the Job
        if view is not None:
            cancel.cancel(cluster, namespace, view)
        self._views.forget(app_id)
        return True

    def delete(self, app_id: str) -> None:
        """Delete all objects of an app, with its logs. A missing app is not an error."""
        from torchx_sched_k8s import cancel

        namespace, name = parse_app_id(app_id)
        array, index = split_element_id(name)
        if index is not None:
            from torchx_sched_k8s.arrays import delete_element

            delete_element(self._cluster_of_app(app_id), namespace, array, index)
            self._views.forget(app_id)
            self._described.forget(app_id)
            return
        view = self._view(app_id) if name else None
        if view is not None:
            cancel.delete(self._cluster_of_app(app_id), namespace, view)
            self._views.forget(app_id)
            self._described.forget(app_id)

    def _delete_existing(self, app_id: str) -> None:
        self.delete(app_id)

    # Methods for commands and ports inside a pod.

    def open_session(
        self,
        app_id: str,
        role_name: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command in the container of a replica."""
        from torchx_sched_k8s.sessions.exec import PodExec

        pod = self._running_pod(app_id, role_name, k)
        cluster, namespace = self._cluster_of_app(app_id), parse_app_id(app_id)[0]
        return PodExec(cluster, namespace, pod.name, pod.container, command, tty, stdin)

    def open_port(self, app_id: str, role_name: str, k: int, port: int) -> socket:
        """Return a socket that is connected to a port of the pod of a replica."""
        from torchx_sched_k8s.sessions.ports import open_port

        pod = self._running_pod(app_id, role_name, k)
        cluster, namespace = self._cluster_of_app(app_id), parse_app_id(app_id)[0]
        replica = f"{role_name}/{k}"
        return open_port(cluster, namespace, pod.name, replica, port, self._open_ports)

    def _running_pod(self, app_id: str, role_name: str, k: int) -> Pod:
        """Return the running pod of a replica.

        Raises:
            ReplicaNotRunningError: The replica has ended, or has not started.
            UnknownAppException: The app does not exist.
            UnknownReplicaError: The app has no such role or replica.
        """
        role = self._role_of(app_id, role_name, k)
        pods, more = self._find_pods(app_id, role.index, k)
        pod = pods[-1] if pods else None
        if pod is not None and pod.state == AppState.RUNNING and not pod.leaving:
            return pod
        state = f" ({pod.state.name}{f': {pod.reason}' if pod.reason else ''})" if pod else ""
        verb = "has not started" if more else "has ended"
        raise ReplicaNotRunningError(f"{role_name}/{k} of app {app_id} {verb}{state}")

    # Methods that read logs.

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        *,
        last: int | None = None,
        partial: bool = False,
    ) -> Iterable[str]:
        """Return the log lines of one replica, including its earlier attempts.

        With ``should_tail``, the iterator waits for a pod that has not started. It continues after
        a lost connection, a restart of the API server, or the replacement of a pod.

        Args:
            app_id: The app.
            role_name: Name of the role.
            k: Index of the replica in its role.
            regex: Leave out lines that do not match.
            since: Leave out lines before this time.
            until: Leave out lines from this time on.
            should_tail: Whether to wait for more lines until the replica has ended.
            streams: Return only standard output or standard error. Few clusters support this.
            last: Return only the last lines, at most this many, counted before ``regex`` is
                applied; with ``should_tail``, also the lines that are added later. None returns all
                lines.
            partial: Whether to return the start of a line before the line is complete. This has an
                effect only with ``should_tail``, and without ``regex`` and ``until``. The text
                appears when the node has stored it: with CRI-O at once, with containerd when the
                line ends or has 16 KB.

        Raises:
            RequestError: Raised by the iterator: the cluster cannot return one stream alone.
            UnknownAppException: The app does not exist.
            UnknownReplicaError: The app has no such role or replica.
        """
        from torchx_sched_k8s.logs.replica_log import ReplicaLog

        closing = closing_of(self)
        namespace, _ = parse_app_id(app_id)
        role = self._role_of(app_id, role_name, k)
        parameters = {Stream.STDOUT: "Stdout", Stream.STDERR: "Stderr"}
        log = ReplicaLog(
            self._cluster_of_app(app_id),
            namespace,
            lambda: self._find_pods(app_id, role.index, k),
            since,
            until,
            parameters.get(streams or Stream.COMBINED),
            closing,
        )
        with_pieces = partial and not regex and until is None
        lines: Iterable[str] = log.lines(should_tail, last, partial=with_pieces)
        return filter_regex(regex, lines) if regex else lines

    def _role_of(self, app_id: str, role_name: str, k: int) -> RoleView:
        view = self._view(app_id, _RECENT_SECONDS) if parse_app_id(app_id)[1] else None
        if view is None:
            raise UnknownAppException(f"{self.backend}://{self.session_name}/{app_id}")
        replicas = {role.name: role.replicas for role in view.roles}
        check_replica(app_id, replicas, role_name, k)
        return next(role for role in view.roles if role.name == role_name)

    def _find_pods(self, app_id: str, role_index: int, k: int) -> tuple[Sequence[Pod], bool]:
        """Return the pods of a replica, and whether the replica may get more pods."""
        from torchx_sched_k8s.status.pod_states import latest, list_pods

        namespace, name = parse_app_id(app_id)
        name, element = split_element_id(name)
        # query the app before its pods: a pod that is created between the two queries is not missed
        view = self._view(app_id, _RECENT_SECONDS)
        role = next((r for r in view.roles if r.index == role_index), None) if view else None
        if view is None or role is None:
            return [], False
        action = f"find the pod of {role.name}/{k}"
        role_selector = selector(instance=name, role=str(role_index))
        index = {"volcano": VOLCANO_INDEX, "mcad": LABEL_REPLICA_ID}.get(view.api, COMPLETION_INDEX)
        cluster = self._cluster_of_app(app_id)
        pods: Sequence[Pod] = []
        place = k if element is None else element
        if view.api != "volcano" or role.replicas > 1:
            pods = list_pods(cluster, namespace, f"{role_selector},{index}={place}", action)
        if not any(pod.index == place for pod in pods) and element is None:
            # clusters before Kubernetes 1.28 store the index only in an annotation
            pods = list_pods(cluster, namespace, role_selector, action)
        pods = latest(pod for pod in pods if pod.index == place)
        if view.runs_again:
            return pods, True  # a restart of the app also runs replicas that have succeeded
        state = role.state if role.state is not None else view.state
        more = not is_terminal(state) and k not in role.failed and k not in role.succeeded
        return pods, more and not (pods and pods[-1].state == AppState.SUCCEEDED)


def _too_many_jobs(count: int, max_parallel: int | None) -> CapacityError:
    return CapacityError(
        f"{count} apps need more Jobs than max_parallel={max_parallel}; submit them"
        " when others have ended"
    )


def parse_app_id(app_id: str) -> tuple[str, str]:
    """Return the namespace and the name in an app's id; the name is empty if the id is invalid.

    An id without a namespace means the namespace ``default``.

    >>> parse_app_id("team:app-1@my%3Acontext")
    ('team', 'app-1')
    """
    app_id = app_id.partition(_CONTEXT_SIGN)[0]
    namespace, colon, name = app_id.partition(":")
    if not colon:
        namespace, name = "default", app_id
    if not DNS_LABEL.accepts(namespace) or not SUBDOMAIN.accepts(name):
        return namespace, ""
    return namespace, name


def context_of(app_id: str) -> str | None:
    """Return the context in an app's id; None if the app was submitted without ``context``.

    >>> context_of("team:app-1@my%3Acontext")
    'my:context'
    """
    _, sign, context = app_id.partition(_CONTEXT_SIGN)
    return unquote(context) if sign else None


def _suffix(cfg: Mapping[str, Any]) -> str:
    """Return ``@<context>``, the end of an app's id; empty if the options contain no context."""
    context = cfg.get("context")
    return "" if context is None else _CONTEXT_SIGN + quote(str(context), safe="")
