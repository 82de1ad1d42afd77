"""``kubernetes_mcad``: apps as AppWrappers, which MCAD starts when all of an app finds a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.names.ids import make_unique as make_unique
from torchx_sched_k8s.cluster.labels import ANNOTATION_ISTIO_SIDECAR as ANNOTATION_ISTIO_SIDECAR
from torchx_sched_k8s.cluster.labels import LABEL_APP_NAME as LABEL_APP_NAME
from torchx_sched_k8s.cluster.labels import LABEL_INSTANCE_TYPE as LABEL_INSTANCE_TYPE
from torchx_sched_k8s.cluster.labels import LABEL_KUBE_APP_NAME as LABEL_KUBE_APP_NAME
from torchx_sched_k8s.cluster.labels import LABEL_ORGANIZATION as LABEL_ORGANIZATION
from torchx_sched_k8s.cluster.labels import LABEL_REPLICA_ID as LABEL_REPLICA_ID
from torchx_sched_k8s.cluster.labels import LABEL_ROLE_INDEX as LABEL_ROLE_INDEX
from torchx_sched_k8s.cluster.labels import LABEL_ROLE_NAME as LABEL_ROLE_NAME
from torchx_sched_k8s.cluster.labels import LABEL_UNIQUE_NAME as LABEL_UNIQUE_NAME
from torchx_sched_k8s.cluster.labels import LABEL_VERSION as LABEL_VERSION
from torchx_sched_k8s.cluster.labels import object_labels as object_labels
from torchx_sched_k8s.cluster.labels import pod_labels as _pod_labels
from torchx_sched_k8s.legacy_names import sanitize_for_serialization as sanitize_for_serialization
from torchx_sched_k8s.legacy_names import to_model
from torchx_sched_k8s.mcad.appwrapper import (
    JOB_STATE as JOB_STATE,
)
from torchx_sched_k8s.mcad.appwrapper import (
    LABEL_POD_GROUP,
    appwrapper_view,
    cleaned,
    complete_pod,
    make_appwrapper,
    pod_group,
    pod_opts,
    retry,
    service,
    service_port,
    unique_name,
)
from torchx_sched_k8s.mcad.options import KubernetesMCADOpts as KubernetesMCADOpts
from torchx_sched_k8s.mcad.options import problems_of_mcad
from torchx_sched_k8s.options import RESERVED_MEMMB as RESERVED_MEMMB
from torchx_sched_k8s.options import RESERVED_MILLICPU as RESERVED_MILLICPU
from torchx_sched_k8s.request.checks import problems_of_app
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob, format_request
from torchx_sched_k8s.request.overlays import NAMESPACE
from torchx_sched_k8s.request.pods import Place, PodMaker
from torchx_sched_k8s.request.retries import RETRY_POLICIES as RETRY_POLICIES
from torchx_sched_k8s.scheduler import KubernetesScheduler, _parsed
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import RetryPolicy as RetryPolicy
from torchx_specs.model.app import Role as Role
from torchx_specs.model.dryrun import AppDryRunInfo as AppDryRunInfo
from torchx_specs.model.mounts import BindMount as BindMount
from torchx_specs.model.mounts import DeviceMount as DeviceMount
from torchx_specs.model.mounts import VolumeMount as VolumeMount
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.model.status import AppState as AppState
from torchx_specs.model.status import ReplicaState as ReplicaState
from torchx_specs.model.status import ReplicaStatus as ReplicaStatus
from torchx_specs.model.status import RoleStatus as RoleStatus
from torchx_specs.model.templates import macros as macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
from torchx_specs.schedulers.api import Scheduler as Scheduler
from torchx_specs.schedulers.api import Stream as Stream
from torchx_specs.schedulers.api import filter_regex as filter_regex
from torchx_specs.schedulers.api import split_lines as split_lines

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, V1Pod, V1Service

    from torchx_sched_k8s.status.views import AppView

KubernetesMCADJob = KubernetesJob
Opts = KubernetesMCADOpts

#: Words of an AppWrapper's status for its pods.
TASK_STATE: dict[str, AppState] = {
    "Pending dispatch": AppState.PENDING,
    "pending": AppState.PENDING,
    "running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "Unknown": AppState.UNKNOWN,
}


def create_scheduler(
    session_name: str, client: ApiClient | None = None, docker_client: Any = None, **kwargs: Any
) -> KubernetesMCADScheduler:
    """Returns a scheduler; parameters of other schedulers are ignored."""
    return KubernetesMCADScheduler(session_name, client, docker_client)


class KubernetesMCADScheduler(KubernetesScheduler):
    """Runs apps as AppWrappers of MCAD.

    Args:
        session_name: the session, part of the handles
        client: a client of the cluster to use instead of one made from the environment
        docker_client: kept for older code
    """

    def __init__(
        self, session_name: str, client: ApiClient | None = None, docker_client: Any = None
    ) -> None:
        super().__init__(session_name, client, docker_client)
        self.backend = "kubernetes_mcad"

    @classmethod
    def _opts_type(cls) -> Any:
        return KubernetesMCADOpts

    def _run_opts(self) -> runopts:
        return KubernetesMCADOpts.as_runopts()

    # -- the request

    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        """Checks an app; none needs a resource here.

        Raises:
            RequestError: no cluster could run it
        """
        opts = (
            cfg if isinstance(cfg, KubernetesMCADOpts) else KubernetesMCADOpts.from_cfg(cfg or {})
        )
        _check(app, opts)

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[KubernetesJob]:
        _check(app, cfg)
        job = KubernetesJob({}, make_appwrapper(app, cfg), cfg.namespace)
        return AppDryRunInfo(job, format_request)

    # -- submitted apps

    def _find(self, app_id: str, last: AppView | None) -> AppView | None:
        from torchx_sched_k8s.cluster.paths import MCAD, object_path

        namespace, name = _parsed(app_id)
        path = object_path(MCAD, namespace, "appwrappers", name)
        found = self._cluster.get_or_none(path, f"look for the app {name}")
        return appwrapper_view(name, found) if found else None

    def _describe(self, app_id: str) -> DescribeAppResponse | None:
        # AppWrappers do not say that their pods have succeeded: the pods do
        found = super()._describe(app_id)
        if found is not None and found.state in (AppState.RUNNING, AppState.PENDING):
            states = {replica.state for role in found.roles_statuses for replica in role.replicas}
            if states == {AppState.SUCCEEDED}:
                found.state = AppState.SUCCEEDED
        return found

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns the AppWrappers of a namespace, that of the kubeconfig's context if not given."""
        from torchx_sched_k8s.cluster.errors import ApiError
        from torchx_sched_k8s.cluster.kubeconfig import namespace_of_context
        from torchx_sched_k8s.cluster.paths import MCAD, object_path

        cfg = cfg or {}
        self._use(cfg)
        namespace = str(cfg.get("namespace") or namespace_of_context(self._context))
        path = object_path(MCAD, namespace, "appwrappers")
        apps = []
        try:
            for wrapper in self._cluster.list_items(
                path, f"list the apps of namespace {namespace}"
            ):
                name = str(wrapper["metadata"]["name"])
                view = appwrapper_view(name, wrapper)
                handle = f"kubernetes_mcad://{self.session_name}/{namespace}:{name}"
                apps.append(ListAppResponse(f"{namespace}:{name}", view.state, handle, view.name))
        except ApiError as e:
            if e.status != 404:
                raise
        return apps

    def cancel(self, app_id: str) -> None:
        """Ends an app by removing it, which is the only way that AppWrappers have."""
        self.delete(app_id)


def _check(app: AppDef, opts: KubernetesMCADOpts) -> None:
    problems = [*problems_of_mcad(opts), *problems_of_app(app)]
    if problems:
        raise RequestError(problems)
    import logging

    logger = logging.getLogger(__name__)
    for role in app.roles:
        if role.max_retries > 0 and role.retry_policy != RetryPolicy.APPLICATION:
            logger.warning("role %s: a retry starts the whole app again with MCAD", role.name)
        if role.metadata.get(NAMESPACE):
            logger.warning("role %s: its overlays are left out: AppWrappers take none", role.name)
    if opts.service_account and opts.image_secret:
        logger.warning(
            "image_secret and service_account are both given; the secret is used beside those of"
            " the service account"
        )


# -- functions that older programs import


def cleanup_str(data: str) -> str:
    """Returns a name in lower case that begins with a letter or a dash, without what a host name
    cannot have.
    """
    return cleaned(data)


def get_unique_truncated_appid(app: AppDef) -> str:
    """Returns a new name for an app."""
    return unique_name(app)


def get_port_for_service(app: AppDef) -> str:
    """Returns the port of an app's service."""
    return str(service_port(app))


def enable_retry(job_spec: dict[str, Any], appwrapper_retries: int, total_pods: int) -> None:
    """Lets MCAD put an app that lost pods into the queue again."""
    retry(job_spec, appwrapper_retries, total_pods)


def create_pod_group(
    app: AppDef, role: Role, role_idx: int, namespace: str, app_id: str
) -> dict[str, Any]:
    """Returns the item of an AppWrapper with the pod group of a role."""
    group = pod_group(app, role, role_idx, namespace, app_id)
    return {"replicas": 1, "generictemplate": group}


def mcad_svc(app: AppDef, svc_name: str, namespace: str, service_port: str) -> V1Service:
    """Returns the service through which an app's pods find each other."""
    found: V1Service = to_model(service(app, svc_name, namespace, int(service_port)), "V1Service")
    return found


def pod_labels(
    app: AppDef,
    role_idx: int,
    role: Role,
    replica_id: int,
    coscheduler_name: str | None,
    app_id: str,
) -> dict[str, str]:
    """Returns the labels of the pod of one replica."""
    labels = _pod_labels(app, role_idx, role, replica_id, app_id)
    if coscheduler_name is not None:
        labels[LABEL_POD_GROUP] = f"{app_id}-pg{role_idx}"
    return labels


def role_to_pod(
    name: str,
    unique_app_id: str,
    namespace: str,
    role: Role,
    service_account: str | None,
    image_secret: str | None,
    coscheduler_name: str | None,
    priority_class_name: str | None,
    network: str | None,
) -> V1Pod:
    """Returns the pod of one replica of a role whose macros have been substituted."""
    from torchx_sched_k8s.legacy_names import verbatim

    opts = KubernetesMCADOpts(
        namespace=namespace,
        service_account=service_account,
        priority_class_name=priority_class_name,
        image_secret=image_secret,
        coscheduler_name=coscheduler_name,
        network=network,
    )
    place = Place(unique_app_id, namespace, {}, {}, "", replica=0)
    pod = PodMaker(verbatim(role), pod_opts(opts), plain=True).make(name, place)
    found: V1Pod = to_model(complete_pod(pod, name, unique_app_id, opts), "V1Pod")
    return found


def app_to_resource(
    app: AppDef,
    namespace: str,
    service_account: str | None,
    image_secret: str | None,
    coscheduler_name: str | None,
    priority_class_name: str | None,
    network: str | None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Returns the AppWrapper of an app, as plain data."""
    return make_appwrapper(
        app,
        KubernetesMCADOpts(
            namespace=namespace,
            service_account=service_account,
            priority=priority,
            priority_class_name=priority_class_name,
            image_secret=image_secret,
            coscheduler_name=coscheduler_name,
            network=network,
        ),
    )


def get_role_information(generic_items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the roles of an AppWrapper's items, by name."""
    from torchx_sched_k8s.status.describe import described_role

    wrapper = {"spec": {"resources": {"GenericItems": list(generic_items)}}}
    return {role.name: described_role(role) for role in appwrapper_view("", wrapper).roles}


def get_appwrapper_status(app: Mapping[str, Any]) -> AppState:
    """Returns the state of an AppWrapper."""
    status = app.get("status")
    if not isinstance(status, Mapping):
        return AppState.PENDING
    return JOB_STATE.get(str(status.get("state")), AppState.PENDING)


def get_tasks_status_description(status: Mapping[str, Any]) -> dict[str, int]:
    """Returns how many pods of an AppWrapper are in which state."""
    return {word: int(status[word]) for word in TASK_STATE if word in status}
