"""The scheduler ``kubernetes``, which runs apps as pods of a Kubernetes cluster.

The option ``job_api`` selects the objects of an app: an Indexed Job for each role and a headless
Service (``batch``), a JobSet (``jobset``), or a Volcano Job (``volcano``). An app's id is
``<namespace>:<name>``. If the app was submitted with the option ``context``, the id is
``<namespace>:<name>@<context>``. All objects of the app have a label with its name. Nothing is
stored outside the cluster, so every user with the rights to the objects can manage the app.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.logs.lines import filter_regex as filter_regex
from torchx_kit.logs.lines import split_lines as split_lines
from torchx_kit.names.ids import make_unique as make_unique
from torchx_kit.names.limits import DNS_LABEL
from torchx_kit.role_checks import check_replica
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_k8s.cluster.labels import ANNOTATION_ISTIO_SIDECAR as ANNOTATION_ISTIO_SIDECAR
from torchx_sched_k8s.cluster.labels import COMPLETION_INDEX, VOLCANO_INDEX, selector
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
from torchx_sched_k8s.request.checks import check
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob as KubernetesJob
from torchx_sched_k8s.request.kubernetes_job import check_size, format_request, make_request
from torchx_sched_k8s.request.pods import PLACEHOLDER_FIELD_PATH as PLACEHOLDER_FIELD_PATH
from torchx_sched_k8s.request.retries import RETRY_POLICIES as RETRY_POLICIES
from torchx_sched_k8s.status.pending_warnings import PendingWarnings
from torchx_specs.errors import UnknownAppException
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

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.pod_states import Pod
    from torchx_sched_k8s.status.views import AppView, RoleView

#: How old the shared view of an app may be for threads that read the app's logs, in seconds.
_RECENT_SECONDS = 1.0

#: Separates the context from the rest of an app's id. Names in a cluster cannot contain it.
_CONTEXT_SIGN = "@"

Opts = KubernetesOpts


def create_scheduler(
    session_name: str, client: ApiClient | None = None, docker_client: Any = None, **kwargs: Any
) -> KubernetesScheduler:
    """Return a scheduler. Other keyword arguments are ignored: they are for other schedulers."""
    return KubernetesScheduler(session_name, client, docker_client)


class KubernetesScheduler(BuilderWorkspaceMixin, Scheduler[KubernetesOpts]):
    """Runs apps as pods of a Kubernetes cluster.

    The kubeconfig in ``KUBECONFIG`` names the cluster. Without this variable, a process that runs
    in a cluster uses that cluster; any other process uses ``~/.kube/config``.

    Args:
        session_name: Name of the session, part of the handles.
        client: A client of the kubernetes library; by default it is made from the environment.
        docker_client: Ignored; kept for compatibility.
    """

    resolves_secrets = True
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

    @property
    def _cluster(self) -> Cluster:
        return self._cluster_of(self._context)

    def _cluster_of(self, context: str | None) -> Cluster:
        if context not in self._clusters:
            from torchx_sched_k8s.cluster.client import Cluster

            self._clusters[context] = Cluster(self._client, context)
        return self._clusters[context]

    def _cluster_of_app(self, app_id: str) -> Cluster:
        """Return the cluster that an app's id names by its context.

        For an id without a context, return the cluster of the context that was used last.
        """
        context = context_of(app_id)
        return self._cluster if context is None else self._cluster_of(context)

    def close(self) -> None:
        """Close the connections. Apps continue."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()

    # -- the request

    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        """Check an app and the options. A role without a resource is valid.

        Raises:
            RequestError: The app or the options are invalid.
        """
        check(app, cfg if isinstance(cfg, KubernetesOpts) else KubernetesOpts.from_cfg(cfg or {}))

    def _submit_dryrun(self, app: AppDef, cfg: KubernetesOpts) -> AppDryRunInfo[KubernetesJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    # -- submitting

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesJob]) -> str:
        """Create all objects of an app, or none, and return the app's id.

        Raises:
            BackendError: The cluster does not answer, or refuses the request.
            RequestError: The cluster rejects the request as invalid.
            WorkspaceError: The workspace cannot be built.
        """
        from torchx_sched_k8s.submit import submit

        self.build_pending(dryrun_info)
        cfg = dryrun_info.cfg or {}
        job = dryrun_info.request
        check_size(job)
        self._remember_context(cfg)
        submit(self._cluster, job, check_first=bool(cfg.get("validate_spec", True)))
        return f"{job.namespace}:{job.name}{_suffix(cfg)}"

    def _remember_context(self, cfg: Mapping[str, Any]) -> None:
        """Use the context of these options in later calls with ids that contain no context."""
        context = cfg.get("context")
        if context is not None:
            self._context = str(context)
        if cfg.get("retry_seconds") is not None:
            self._cluster.patience = float(cfg["retry_seconds"])

    # -- submitted apps

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
        pods = list_pods(
            self._cluster_of_app(app_id),
            namespace,
            selector(instance=name),
            f"list the pods of {name}",
        )
        found = describe(self._cluster_of_app(app_id), namespace, name, view, pods)
        found.app_id = app_id
        return found

    def describe_native(self, app_id: str) -> AppDryRunInfo[KubernetesJob] | None:
        """Return an app's objects as the cluster stores them; None if the app does not exist."""
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
        """Return an app's view, read from its objects without its pods; None if the app is missing.

        Args:
            app_id: The app.
            max_age: Return the view of an earlier call if it is at most this old, in seconds.
        """
        return self._views.get(app_id, lambda last: self._find(app_id, last), max_age)

    def _find(self, app_id: str, last: AppView | None) -> AppView | None:
        from torchx_sched_k8s.status.describe import find_app

        namespace, name = parse_app_id(app_id)
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

        namespace, _ = parse_app_id(app_id)
        wait_for_change(self._cluster_of_app(app_id), namespace, self._views.last(app_id), timeout)
        return True

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of all sessions in a namespace, the newest first.

        Args:
            cfg: The options ``namespace`` and ``context``, with the defaults that they have in a
                submission.
        """
        cfg = cfg or {}
        self._remember_context(cfg)
        namespace = str(cfg.get("namespace") or KubernetesOpts.namespace)
        apps = []
        for view in self._list_views(namespace):
            app_id = f"{namespace}:{view.app_id}{_suffix(cfg)}"
            handle = f"{self.backend}://{self.session_name}/{app_id}"
            apps.append(ListAppResponse(app_id, view.state, handle, view.name))
        return apps

    def _list_views(self, namespace: str) -> Iterable[AppView]:
        """Return the views of a namespace's apps."""
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
        view = self._view(app_id) if name else None
        if view is None or view.state == AppState.SUCCEEDED:
            return
        if view.state == AppState.CANCELLED and not cancel.has_unfinished_jobs(view):
            return
        cancel.cancel(self._cluster_of_app(app_id), namespace, view)
        self._views.forget(app_id)

    def _cancel_existing(self, app_id: str) -> None:
        self.cancel(app_id)

    def delete(self, app_id: str) -> None:
        """Delete all objects of an app, with its logs. A missing app is not an error."""
        from torchx_sched_k8s import cancel

        namespace, name = parse_app_id(app_id)
        view = self._view(app_id) if name else None
        if view is not None:
            cancel.delete(self._cluster_of_app(app_id), namespace, view)
            self._views.forget(app_id)
            self._described.forget(app_id)

    def _delete_existing(self, app_id: str) -> None:
        self.delete(app_id)

    # -- logs

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
                applied; when following, also the lines that are added later.
            partial: Has no effect: nodes store text when its line ends, or after 16 KB.

        Raises:
            UnknownAppException: The app does not exist.
            UnknownReplicaError: The app has no such role or replica.
        """
        from torchx_sched_k8s.logs.replica_log import ReplicaLog

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
        )
        lines: Iterable[str] = log.lines(should_tail, last)
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
        if view.api != "volcano" or role.replicas > 1:
            pods = list_pods(
                self._cluster_of_app(app_id), namespace, f"{role_selector},{index}={k}", action
            )
        if not any(pod.index == k for pod in pods):
            # clusters before Kubernetes 1.28 store the index only in an annotation
            pods = list_pods(cluster, namespace, role_selector, action)
        pods = latest(pod for pod in pods if pod.index == k)
        if view.runs_again:
            return pods, True  # a restart of the app also runs replicas that have succeeded
        state = role.state if role.state is not None else view.state
        more = not is_terminal(state) and k not in role.failed and k not in role.succeeded
        return pods, more and not (pods and pods[-1].state == AppState.SUCCEEDED)


def parse_app_id(app_id: str) -> tuple[str, str]:
    """Return the namespace and the name in an app's id; the name is empty if the id is invalid.

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
