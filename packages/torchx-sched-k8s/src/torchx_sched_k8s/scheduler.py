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
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.jobs.arrays import split_element_id
from torchx_kit.names.limits import DNS_LABEL
from torchx_kit.role_checks import check_replica
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_k8s.backends.batch import BATCH, BatchBackend
from torchx_sched_k8s.backends.jobset import JOBSET
from torchx_sched_k8s.backends.volcano import VOLCANO
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.kubeconfig import context_in, default_namespace
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_NAMES,
    LABEL_REPLICA_ID,
    annotations_of,
    labels_of,
    selector,
)
from torchx_sched_k8s.options import SUBDOMAIN, KubernetesOpts
from torchx_sched_k8s.request.checks import RULES, request_problems
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob, check_size, format_request
from torchx_sched_k8s.status.pod_states import Pod, latest, list_pods
from torchx_sched_k8s.status.views import AppView, RoleView, creation
from torchx_specs.errors import UnknownAppException
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import (
    DescribeAppResponse,
    GpuCounts,
    ListAppResponse,
    Scheduler,
)
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.features import No, SchedulerFeatures

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from torchx_sched_k8s.backends.backend import Backend
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.logs import KubernetesLogs
    from torchx_sched_k8s.sessions import KubernetesSessions
    from torchx_specs.schedulers.arrays import Arrays

#: The maximum age, in seconds, of a cached AppView that log readers and sessions use again.
_RECENT_SECONDS = 1.0

#: Separates the context from the rest of an app's id. Names in a cluster cannot contain it.
_CONTEXT_SIGN = "@"

#: The backends by the value of the option ``job_api``. The first one needs no operator.
BACKENDS: dict[str, Backend] = {one.name: one for one in (BATCH, JOBSET, VOLCANO)}

Opts = KubernetesOpts


def create_scheduler(
    session_name: str, client: ApiClient | None = None, docker_client: Any = None, **kwargs: Any
) -> KubernetesScheduler:
    """Return the scheduler; ``kwargs`` are options of other schedulers and are ignored."""
    return KubernetesScheduler(session_name, client, docker_client)


class KubernetesScheduler(BuilderWorkspaceMixin, Scheduler[KubernetesOpts]):
    """Runs apps as pods of a Kubernetes cluster.

    The kubeconfig in ``KUBECONFIG`` names the cluster. Without this variable, a process that runs
    in a cluster uses that cluster; any other process uses ``~/.kube/config``.

    Args:
        session_name: Name of the session; it is part of the apps' handles.
        client: A client of the kubernetes library; by default it is made from the environment.
        docker_client: Ignored; kept for compatibility.
    """

    features = SchedulerFeatures(
        native=True,
        watch=True,
        time_limit=True,
        requeue=True,
        ends_app=True,
        not_utf8=No("the API of Kubernetes is JSON"),
        secrets=True,
        dependencies=No("no Job of Kubernetes waits for another one"),
        logs=True,
        streams=No("the log of a container is one"),
        last=True,
        partial=No("nodes with containerd store only whole lines"),
        attempt_marks=True,
        exec=True,
        ports=True,
        archives=No("the API has no files of pods"),
        arrays=True,
        array_limit=True,
        gpus=True,
    )
    request_rules = RULES
    #: The APIs whose objects the apps of this scheduler have, the default one first.
    backends: ClassVar[Sequence[Backend]] = tuple(BACKENDS.values())
    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})

    def __init__(
        self, session_name: str, client: ApiClient | None = None, docker_client: Any = None
    ) -> None:
        super().__init__("kubernetes", session_name)
        self._client = client
        self._clusters: dict[str | None, Cluster] = {}
        self._views: CoalescingCache[AppView] = CoalescingCache()
        self._described: CoalescingCache[DescribeAppResponse] = CoalescingCache()
        # Apps whose end was seen in a watch, and which the cluster may have deleted since.
        self._ended: dict[str, AppView] = {}
        # Pods and ports that have accepted a connection, so that the next one is not delayed.
        self._open_ports: set[tuple[str, int]] = set()

    def _cluster_of(self, context: str | None) -> Cluster:
        found = self._clusters.get(context)
        if found is None:
            from torchx_sched_k8s.cluster.client import Cluster

            found = self._clusters.setdefault(context, Cluster(self._client, context))
        return found

    def _locate(self, app_id: str) -> tuple[Cluster, str, str]:
        """Return an app's cluster, namespace and name; the name is empty if the id is invalid."""
        _, sign, context = app_id.partition(_CONTEXT_SIGN)
        return self._cluster_of(unquote(context) if sign else None), *parse_app_id(app_id)

    def close(self) -> None:
        """Close the connections to all clusters. Apps continue to run."""
        super().close()
        clusters, self._clusters = self._clusters, {}
        for cluster in list(clusters.values()):
            cluster.close()

    # Methods that make the request.

    def _request_problems(self, app: AppDef, cfg: KubernetesOpts) -> Iterable[str]:
        # the API's own checks need valid options
        return list(request_problems(app, cfg)) or BACKENDS[cfg.api].problems(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: KubernetesOpts) -> AppDryRunInfo[KubernetesJob]:
        cfg = replace(cfg, namespace=self._namespace(cfg.namespace, cfg.context))
        backend = BACKENDS[cfg.api]
        for warning in backend.warnings(app, cfg):
            logging.getLogger(__name__).warning("%s", warning)
        job = KubernetesJob({}, backend.make(app, cfg), cfg.namespace)
        check_size(job)
        return AppDryRunInfo(job, format_request)

    def _namespace(self, namespace: str, context: str | None) -> str:
        """Return the namespace of the options, or the default of the context if it is empty."""
        if namespace or self._client is not None:
            return namespace or "default"
        return default_namespace(context)

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
        app_id = f"{job.namespace}:{job.name}{id_suffix(cfg)}"
        check_first = cfg.get("validate_spec") is not False
        cluster = self._cluster_for(cfg)
        submit(cluster, job, self.backends, check_first=check_first, app_id=app_id)
        return app_id

    @property
    def app_arrays(self) -> Arrays[Any]:
        """Submits many apps as indexes of Jobs."""
        from torchx_sched_k8s.arrays import KubernetesArrays

        return KubernetesArrays(self)

    def _cluster_for(self, cfg: Mapping[str, Any]) -> Cluster:
        """Return the cluster of the option ``context``, with the limit of ``retry_seconds``."""
        cluster = self._cluster_of(context_in(cfg))
        if cfg.get("retry_seconds") is not None:
            cluster.patience = float(cfg["retry_seconds"])
        return cluster

    # Methods for submitted apps.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if it does not exist."""
        return self._described.get(app_id, lambda _: self._describe(app_id))

    def _describe(self, app_id: str) -> DescribeAppResponse | None:
        from torchx_sched_k8s.status.describe import describe

        cluster, namespace, _ = self._locate(app_id)
        view = self._view(app_id) or self._ended.get(app_id)
        if view is None:
            return None
        pods = view.backend.pods(cluster, namespace, view)
        found = describe(cluster, namespace, app_id, view, pods)
        found.roles = [*view.backend.own_roles(cluster, namespace, view, found.roles)]
        return found

    def describe_native(self, app_id: str) -> AppDryRunInfo[KubernetesJob] | None:
        """Return an app as the cluster stores it; None if the app does not exist.

        The result contains the app's Jobs, JobSet or AppWrapper, but no Service and no ConfigMap.
        """
        namespace, _ = parse_app_id(app_id)
        view = self._view(app_id)
        if view is None:
            return None
        # the API omits these fields in the items of a list
        head = {"apiVersion": view.backend.api_version, "kind": view.backend.kind}
        objects = [{**head, **one} for one in view.objects]
        resource: dict[str, Any] = objects[0]
        if isinstance(view.backend, BatchBackend):
            resource = {"apiVersion": "v1", "kind": "List", "items": objects}
        return AppDryRunInfo(KubernetesJob({}, resource, namespace), format_request)

    def _view(self, app_id: str, max_age: float = 0.0) -> AppView | None:
        """Return an app's data, read without its pods; None if it does not exist or is invalid.

        Args:
            app_id: The app.
            max_age: Return cached data if it is at most this old, in seconds.
        """
        if not parse_app_id(app_id)[1]:
            return None
        return self._views.get(app_id, lambda last: self._find(app_id, last), max_age)

    def _find(self, app_id: str, last: AppView | None) -> AppView | None:
        cluster, namespace, name = self._locate(app_id)
        array, index = split_element_id(name)
        if index is not None:
            from torchx_sched_k8s.arrays import ElementBackend

            return ElementBackend(index).find(cluster, namespace, array)
        likely = self.backends[0] if last is None else last.backend
        refused: dict[Backend, ApiError] = {}
        for backend in sorted(self.backends, key=lambda one: one is not likely):
            try:
                if (view := backend.find(cluster, namespace, name)) is not None:
                    return view
            except ApiError as e:
                # 403 may also mean that the API is not installed
                if e.status != 403 or not backend.missing:
                    raise
                refused[backend] = e
        if likely in refused:
            raise refused[likely]
        return None

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Block until an app's objects have changed since they were last read; 30 s at most."""
        from torchx_sched_k8s.cluster.watch import changed_view, wait_for_change

        cluster, namespace, name = self._locate(app_id)
        view = self._views.last(app_id)
        changed = wait_for_change(cluster, namespace, view, timeout, closing_of(self))
        if view is not None and changed is not None and split_element_id(name)[1] is None:
            latest = changed_view(view, changed)
            if latest is not None and is_terminal(latest.state):
                # the cluster may delete the app before the next query: its time to live may be 0
                self._ended[app_id] = latest
        return True

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of all sessions in a namespace, the newest first.

        Args:
            cfg: The options ``namespace`` and ``context``. A missing option has the same default as
                in a submission.
        """
        from torchx_kit.jobs.descriptions import set_times

        cfg = cfg or {}
        cluster = self._cluster_for(cfg)
        namespace = self._namespace(str(cfg.get("namespace") or ""), context_in(cfg))
        apps = []
        for view in self._listed(cluster, namespace):
            app_id = f"{namespace}:{view.backend.name_of(view)}{id_suffix(cfg)}"
            handle = f"{self.backend}://{self.session_name}/{app_id}"
            app = ListAppResponse(app_id, view.state, handle, view.name)
            has_started = view.state == AppState.RUNNING or is_terminal(view.state)
            started = view.started if has_started else None
            set_times(app, creation(view.objects), started=started, ended=view.ended)
            app.exit_code = 0 if view.state == AppState.SUCCEEDED else None
            apps.append(app)
        return apps

    def gpus(self, cfg: Mapping[str, CfgVal] | None = None) -> GpuCounts:
        """Return how many GPUs of the cluster are free, in use and unavailable.

        Args:
            cfg: The option ``context``.

        Raises:
            ApiError: The user may not list nodes, or the pods of all namespaces.
        """
        from torchx_sched_k8s.cluster.gpus import count_gpus

        return count_gpus(self._cluster_for(cfg or {}))

    def _listed(self, cluster: Cluster, namespace: str) -> Iterator[AppView]:
        """Yield the data of each app, the newest first; an array is replaced by its elements.

        APIs that are not installed in the cluster, or that the user may not list, are left out;
        only the right to list the first API is required.
        """
        from torchx_sched_k8s.arrays import list_elements

        action = f"list the apps of namespace {namespace}"
        views: list[AppView] = []
        for backend in self.backends:
            try:
                views += backend.list(cluster, namespace, action)
            except ApiError as e:
                # 403 may also mean that the API is not installed
                if e.status != 404 and (e.status != 403 or backend is self.backends[0]):
                    raise
        for view in sorted(views, key=lambda one: str(creation(one.objects)), reverse=True):
            if ANNOTATION_NAMES in annotations_of(view.objects[0]):
                yield from list_elements(cluster, namespace, view)
            else:
                yield view

    def exists(self, app_id: str) -> bool:
        """Return whether the app exists; an app that has ended exists until it is deleted."""
        return self._view(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """End an app. An app that is missing or has ended is not an error.

        The app's pods and their logs are deleted. The other objects stay, annotated as cancelled.
        """
        self._end(app_id)

    def _cancel_existing(self, app_id: str) -> None:
        self.cancel(app_id)

    def delete(self, app_id: str) -> None:
        """Delete all objects of an app, with its logs. A missing app is not an error."""
        self._end(app_id, delete=True)

    def _end(self, app_id: str, *, delete: bool = False) -> None:
        cluster, namespace, _ = self._locate(app_id)
        if (view := self._view(app_id)) is not None:
            (view.backend.delete if delete else view.backend.cancel)(cluster, namespace, view)
        self._views.forget(app_id)
        self._described.forget(app_id)
        self._ended.pop(app_id, None)

    # Methods that read logs, and access running pods.

    @property
    def app_logs(self) -> KubernetesLogs:
        """Reads the logs of pods."""
        from torchx_sched_k8s.logs import KubernetesLogs

        return KubernetesLogs(self)

    @property
    def app_sessions(self) -> KubernetesSessions:
        """Runs commands in pods, and connects to their ports."""
        from torchx_sched_k8s.sessions import KubernetesSessions

        return KubernetesSessions(self)

    def _recent_view(self, app_id: str) -> AppView:
        view = self._view(app_id, _RECENT_SECONDS)
        if view is None:
            raise UnknownAppException(f"{self.backend}://{self.session_name}/{app_id}")
        return view

    def _role_of(self, app_id: str, role_name: str, k: int) -> RoleView:
        view = self._recent_view(app_id)
        replicas = {role.name: role.replicas for role in view.roles}
        check_replica(app_id, replicas, role_name, k)
        return next(role for role in view.roles if role.name == role_name)

    def _find_pods(self, app_id: str, role_index: int, k: int) -> tuple[Sequence[Pod], bool]:
        """Return the pods of a replica, and whether the replica may get more pods.

        Raises:
            UnknownAppException: The app was deleted.
        """
        cluster, namespace, name = self._locate(app_id)
        name, element = split_element_id(name)
        # query the app before its pods: a pod that is created between the two queries is not missed
        view = self._recent_view(app_id)
        role = next((r for r in view.roles if r.index == role_index), None)
        if role is None:
            return [], False
        action = f"find the pod of {role.name}/{k}"
        # a pod of an AppWrapper has a template of its own, as in Volcano Jobs of older releases
        is_own = LABEL_REPLICA_ID in labels_of(role.template)
        label = LABEL_REPLICA_ID if is_own else view.backend.index_label
        index = f"{label}={k if element is None else element}"
        wanted = f"{selector(instance=name, role=str(role_index))},{index}"
        pods = latest(list_pods(cluster, namespace, wanted, action))
        if view.runs_again:
            return pods, True  # a restart of the app also runs replicas that have succeeded
        more = not is_terminal(role.state) and k not in role.failed and k not in role.succeeded
        return pods, more and not (pods and pods[-1].state == AppState.SUCCEEDED)


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


def id_suffix(cfg: Mapping[str, Any]) -> str:
    """Return ``@<context>``, the end of an app's id; empty if the options contain no context."""
    context = context_in(cfg)
    return "" if context is None else _CONTEXT_SIGN + quote(context, safe="")
