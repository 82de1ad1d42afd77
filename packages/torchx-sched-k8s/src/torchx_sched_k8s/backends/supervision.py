"""The supervisor of an app of plain Jobs: what the other modules need from its plugin.

No controller of a plain cluster ends or restarts several Jobs together. An app can therefore have a
supervisor: a Job of one pod, which has the app's name and owns all other objects of the app. The
hook ``torchx_supervisors`` yields it under the name ``kubernetes``. Without this plugin, apps have
no supervisor, and an app that already has one is read as if it had none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.labels import LABEL_ROLE_INDEX, labels_of
from torchx_sched_k8s.status.views import (
    job_state,
)
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.status import AppState, AttemptStatus
from torchx_specs.plugins.manager import get_manager

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.options import KubernetesOpts
    from torchx_sched_k8s.status.pod_states import Pod

#: Label whose value shows whether an object belongs to the supervisor or to a role. Only apps with
#: a supervisor use this label.
LABEL_PART = "torchx.pytorch.org/part"
PART_SUPERVISOR = "supervisor"
PART_REPLICA = "replica"

_NAME = "kubernetes"


class Supervision:
    """The Jobs of an app without a supervisor. The plugin of a supervisor has a subclass.

    Args:
        jobs: The app's existing Jobs.
        missing_jobs: Manifests of roles' Jobs that do not exist because the app is being restarted.

    Attributes:
        supervisor: The supervisor's Job; None if the app has no supervisor.
        objects: The existing Jobs. The supervisor's Job is the first, so that it is deleted first:
            the supervisor could recreate deleted Jobs.
        role_jobs: The roles' Jobs in the order of the roles, including manifests of missing Jobs.
        restarts: How many times the app was restarted, also after disruptions.
        ended: State and reason if the app was cancelled or has failed for good; otherwise None.
        is_active: Whether the supervisor may still restart or end the app.
        may_restart: Whether a failure or a disruption may still restart the app.
        missing: How many roles have neither a Job nor a manifest; at least 1 if no role has one.
        missing_state: The state of a role without a Job.
    """

    def __init__(
        self, jobs: Sequence[Mapping[str, Any]], missing_jobs: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.supervisor = next((job for job in jobs if is_supervisor(job)), None)
        existing = [job for job in jobs if job is not self.supervisor]
        self.objects = [*([] if self.supervisor is None else [self.supervisor]), *existing]
        self.role_jobs = sorted([*existing, *missing_jobs], key=_role_index)
        self.restarts = 0
        self.ended: tuple[AppState, str] | None = None
        self.is_active = False
        self.may_restart = False
        self.missing = 0 if self.role_jobs else 1
        self.missing_state = AppState.PENDING

    def is_replaced(self, job: Mapping[str, Any]) -> bool:
        """Return whether a role's Job does not exist or will be replaced by the present restart."""
        return False

    def state_of(self, job: Mapping[str, Any]) -> tuple[AppState, str]:
        """Return the state of a role's Job, and the reason (empty if there is none)."""
        return job_state(job)

    def max_restarts(self, job: Mapping[str, Any]) -> int:
        """Return how many times failures of a role's Job may restart the app."""
        return 0

    def message(
        self,
        cluster: Cluster,
        namespace: str,
        pods: Sequence[Pod],
        message: str,
        *,
        ended: bool,
    ) -> str:
        """Prepend the reason of an app's restart and its supervisor's problems to its message.

        Args:
            cluster: The cluster.
            namespace: Namespace of the app.
            pods: All pods of the app.
            message: The app's message, which does not mention the restart.
            ended: Whether the app and all its roles have ended.
        """
        return message

    def attempts(self, state: AppState, ended: datetime | None) -> list[AttemptStatus]:
        """Return the attempts of an app with the option ``requeue``; empty for another app.

        Args:
            state: The state of the app.
            ended: When the app ended; None if it has not, or if unknown.
        """
        return []

    def stop(
        self, cluster: Cluster, namespace: str, app_id: str, changes: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """End the supervisor, so that it creates no Jobs, and return the Jobs that remain to end.

        Args:
            cluster: The cluster.
            namespace: Namespace of the app.
            app_id: Name of the app in the cluster.
            changes: Changes to merge into the supervisor's Job.
        """
        return self.objects

    def dependents(self) -> Iterable[tuple[str, str, str]]:
        """Return API path, plural and name of each object that only the supervisor uses."""
        return ()


class Supervisor(ABC):
    """What the hook's factory returns: makes and reads the objects of supervisors."""

    @abstractmethod
    def supervise(
        self,
        app: AppDef,
        app_id: str,
        service: dict[str, Any],
        jobs: Sequence[dict[str, Any]],
        opts: KubernetesOpts,
    ) -> list[dict[str, Any]]:
        """Return an app's objects together with its supervisor's objects.

        Args:
            app: The app.
            app_id: Name of the app in the cluster.
            service: The app's Service; may be changed in place.
            jobs: The app's Jobs, one for each role; may be changed in place.
            opts: The scheduler's options.

        Raises:
            RequestError: A Job cannot be supervised.
        """

    @abstractmethod
    def unsupervised(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """Return an app's objects without the supervisor's objects.

        Return None if the supervisor is also needed for restarts.
        """

    @abstractmethod
    def read(
        self,
        jobs: Sequence[Mapping[str, Any]],
        cluster: Cluster | None = None,
        namespace: str = "",
    ) -> Supervision:
        """Interpret the Jobs of an app together with its supervisor.

        Args:
            jobs: The app's existing Jobs, including the supervisor's Job.
            cluster: The cluster, to read manifests of missing Jobs; None to read nothing.
            namespace: Namespace of the app.
        """


def is_supervisor(resource: Mapping[str, Any]) -> bool:
    """Return True if an object belongs to an app's supervisor."""
    return labels_of(resource).get(LABEL_PART) == PART_SUPERVISOR


def find_owner(objects: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the supervisor's Job, or None if the app has none.

    The Job owns all other objects, so it is created first. The Job's pod uses the other objects, so
    the Job is suspended until all of them exist.
    """
    return next((one for one in objects if one.get("kind") == "Job" and is_supervisor(one)), None)


def is_restarted(app: AppDef, opts: KubernetesOpts) -> bool:
    """Return whether a supervisor restarts the whole app of plain Jobs.

    The result is True with the option ``requeue``, and with the option ``retry_policy=APPLICATION``
    and more than one replica. A Job restarts a single replica without a supervisor.
    """
    several = sum(role.num_replicas for role in app.roles) > 1
    return opts.has_attempts or (several and opts.retry_policy == RetryPolicy.APPLICATION)


def find_supervisor() -> Supervisor | None:
    """Return the installed supervisor, or None if no plugin yields one.

    Raises:
        PluginError: The supervisor cannot be imported, or several plugins yield one.
    """
    record = get_manager().supervisors().find(_NAME)
    return None if record is None else record.load()()


def install_hint() -> str:
    """Return the command that installs the supervisor."""
    return get_manager().supervisors().installable.get(_NAME, "")


def supervision_of(
    jobs: Sequence[Mapping[str, Any]], cluster: Cluster | None = None, namespace: str = ""
) -> Supervision:
    """Interpret an app's Jobs, by the supervisor's plugin if the app has a supervisor.

    Args:
        jobs: The app's existing Jobs.
        cluster: The cluster, to read manifests of missing Jobs; None to read nothing.
        namespace: Namespace of the app.
    """
    plugin = find_supervisor() if any(map(is_supervisor, jobs)) else None
    return Supervision(jobs) if plugin is None else plugin.read(jobs, cluster, namespace)


def _role_index(job: Mapping[str, Any]) -> int:
    return int(labels_of(job).get(LABEL_ROLE_INDEX) or 0)
