"""The scheduler ``kubernetes_mcad``, which runs each app as an AppWrapper of MCAD.

MCAD starts an AppWrapper when the cluster has room for all pods of the app. The functions after the
scheduler's class are for programs written for older releases.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.logs.lines import filter_regex as filter_regex
from torchx_kit.logs.lines import split_lines as split_lines
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
from torchx_sched_k8s.legacy_names import to_model, verbatim
from torchx_sched_k8s.options import RESERVED_MEMMB as RESERVED_MEMMB
from torchx_sched_k8s.options import RESERVED_MILLICPU as RESERVED_MILLICPU
from torchx_sched_k8s.request.checks import problems_of_roles
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob, format_request
from torchx_sched_k8s.request.overlays import NAMESPACE
from torchx_sched_k8s.request.pods import Place, PodMaker
from torchx_sched_k8s.request.retries import RETRY_POLICIES as RETRY_POLICIES
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_sched_mcad.appwrapper import (
    APPWRAPPER,
    LABEL_POD_GROUP,
    clean_name,
    complete_pod,
    make_appwrapper,
    pod_group,
    pod_opts,
    service,
    service_port,
    set_requeuing,
    unique_name,
)
from torchx_sched_mcad.appwrapper import (
    JOB_STATE as JOB_STATE,
)
from torchx_sched_mcad.options import KubernetesMCADOpts as KubernetesMCADOpts
from torchx_sched_mcad.options import problems_of_mcad
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import AppDryRunInfo as AppDryRunInfo
from torchx_specs.model.app import RetryPolicy as RetryPolicy
from torchx_specs.model.app import Role as Role
from torchx_specs.model.mounts import BindMount as BindMount
from torchx_specs.model.mounts import DeviceMount as DeviceMount
from torchx_specs.model.mounts import VolumeMount as VolumeMount
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.model.status import AppState as AppState
from torchx_specs.model.status import ReplicaState as ReplicaState
from torchx_specs.model.status import ReplicaStatus as ReplicaStatus
from torchx_specs.model.status import RoleStatus as RoleStatus
from torchx_specs.model.templates import macros as macros
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
from torchx_specs.schedulers.api import Scheduler as Scheduler
from torchx_specs.schedulers.api import Stream as Stream
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import No

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, V1Pod, V1Service

KubernetesMCADJob = KubernetesJob
Opts = KubernetesMCADOpts

#: Maps keys of an AppWrapper's status, whose values are numbers of pods, to these pods' states.
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
    """Return the scheduler; ``kwargs`` are options of other schedulers and are ignored."""
    return KubernetesMCADScheduler(session_name, client, docker_client)


class KubernetesMCADScheduler(KubernetesScheduler):
    """Runs apps as AppWrappers of MCAD.

    Args:
        session_name: Name of the session; it is part of the apps' handles.
        client: A client of the kubernetes library; by default it is made from the environment.
        docker_client: Ignored; kept for compatibility.
    """

    features = replace(
        KubernetesScheduler.features,
        cancel_state=No("MCAD cannot end an AppWrapper and keep it"),
        arrays=No("an AppWrapper contains the pods of one app"),
        array_limit=No("an AppWrapper contains the pods of one app"),
        withdrawal=No("MCAD may create the pods of an AppWrapper at any time"),
    )
    backends = (APPWRAPPER,)

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

    # Methods that make the request.

    @property
    def app_arrays(self) -> Arrays[Any]:
        """Submits apps one after another."""
        return Arrays(self)

    def _request_problems(self, app: AppDef, cfg: Any) -> Iterable[str]:
        return [*problems_of_mcad(cfg), *problems_of_roles(app)]

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[KubernetesJob]:
        _warn(app, cfg)
        cfg = replace(cfg, namespace=self._namespace(cfg.namespace, cfg.context))
        job = KubernetesJob({}, APPWRAPPER.make(app, cfg), cfg.namespace)
        return AppDryRunInfo(job, format_request)

    # Methods for submitted apps.

    def _describe(self, app_id: str) -> DescribeAppResponse | None:
        # an AppWrapper does not report that its pods have succeeded
        found = super()._describe(app_id)
        if found is not None and found.state in (AppState.RUNNING, AppState.PENDING):
            replicas = [replica for role in found.roles_statuses for replica in role.replicas]
            if {replica.state for replica in replicas} == {AppState.SUCCEEDED}:
                found.state = AppState.SUCCEEDED
                set_times(found, found.submitted, replicas)
        return found

    def cancel(self, app_id: str) -> None:
        """Delete an app that has not ended, because MCAD cannot end an AppWrapper and keep it."""
        Scheduler.cancel(self, app_id)

    def _cancel_existing(self, app_id: str) -> None:
        self.delete(app_id)


def _warn(app: AppDef, opts: KubernetesMCADOpts) -> None:
    logger = logging.getLogger(__name__)
    for role in app.roles:
        if role.max_retries > 0 and role.retry_policy != RetryPolicy.APPLICATION:
            logger.warning("role %s: with MCAD a retry restarts the whole app", role.name)
        if role.metadata.get(NAMESPACE):
            logger.warning(
                "role %s: ignoring its overlays: kubernetes_mcad supports none", role.name
            )
    if opts.service_account and opts.image_secret:
        logger.warning(
            "image_secret and service_account are both set; the secret is used in addition to the"
            " service account's"
        )


# Functions for programs written for older releases.


def cleanup_str(data: str) -> str:
    """Return the name that :func:`clean_name` makes of a name."""
    return clean_name(data)


def get_unique_truncated_appid(app: AppDef) -> str:
    """Return a new unique name for an app."""
    return unique_name(app)


def get_port_for_service(app: AppDef) -> str:
    """Return the port of an app's Service."""
    return str(service_port(app))


def enable_retry(job_spec: dict[str, Any], appwrapper_retries: int, total_pods: int) -> None:
    """Let MCAD requeue an app that lost pods.

    Args:
        job_spec: Spec of the AppWrapper, changed in place.
        appwrapper_retries: How many times MCAD may requeue the app.
        total_pods: Number of pods below which MCAD requeues the app.
    """
    set_requeuing(job_spec, appwrapper_retries, total_pods)


def create_pod_group(
    app: AppDef, role: Role, role_idx: int, namespace: str, app_id: str
) -> dict[str, Any]:
    """Return the pod group of a role, as an item of an AppWrapper."""
    group = pod_group(app, role, role_idx, namespace, app_id)
    return {"replicas": 1, "generictemplate": group}


def mcad_svc(app: AppDef, svc_name: str, namespace: str, service_port: str) -> V1Service:
    """Return the Service that gives an app's pods host names."""
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
    """Return the labels of the pod of one replica."""
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
    """Return the pod of one replica. The role's macros must already be substituted."""
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
    """Return the AppWrapper of an app, as plain data."""
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
    """Return the roles that an AppWrapper's items contain, by role name."""
    from torchx_sched_k8s.status.describe import described_role

    wrapper = {"spec": {"resources": {"GenericItems": list(generic_items)}}}
    view = APPWRAPPER.view("", [wrapper])
    return {role.name: described_role(role) for role in view.roles}


def get_appwrapper_status(app: Mapping[str, Any]) -> AppState:
    """Return the state of an AppWrapper; PENDING if it has no known state."""
    status = app.get("status")
    if not isinstance(status, Mapping):
        return AppState.PENDING
    return JOB_STATE.get(str(status.get("state")), AppState.PENDING)


def get_tasks_status_description(status: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of pods in an AppWrapper's status, by the keys of ``TASK_STATE``."""
    return {word: int(status[word]) for word in TASK_STATE if word in status}
