"""The scheduler ``kubernetes_mcad``, which runs each app as an AppWrapper of MCAD.

MCAD starts an AppWrapper when the cluster has room for all pods of the app.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.descriptions import set_times
from torchx_sched_k8s.options import problems_of_names
from torchx_sched_k8s.request.checks import problems_of_roles
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob, format_request
from torchx_sched_k8s.request.overlays import NAMESPACE
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_sched_mcad.appwrapper import APPWRAPPER
from torchx_sched_mcad.options import KubernetesMCADOpts
from torchx_specs.model.app import AppDef, AppDryRunInfo, RetryPolicy
from torchx_specs.model.status import AppState
from torchx_specs.options.run_options import runopts
from torchx_specs.schedulers.api import DescribeAppResponse, Scheduler
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import No

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Opts = KubernetesMCADOpts


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
        time_limit=No("the scheduler has no option for it"),
        ends_app=No("an AppWrapper ends with the last of its pods"),
        arrays=No("an AppWrapper contains the pods of one app"),
        array_limit=No("an AppWrapper contains the pods of one app"),
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
        names = ("service_account", "priority_class_name", "image_secret", "coscheduler_name")
        return [*problems_of_names(cfg, names), *problems_of_roles(app)]

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
