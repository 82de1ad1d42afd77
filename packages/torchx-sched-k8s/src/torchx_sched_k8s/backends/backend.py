"""What differs between the APIs of an app's objects: the interface of all backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_sched_k8s.cluster.kueue import suspend
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    COMPLETION_INDEX,
    object_path,
    pod_annotations,
    role_labels,
    selector,
)
from torchx_sched_k8s.cluster.names import app_names
from torchx_sched_k8s.request.pods import Place
from torchx_sched_k8s.status.events import LostPods, lost_pods_of_jobs
from torchx_sched_k8s.status.pod_states import Pod, list_pods
from torchx_sched_k8s.status.views import AppView
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


class Backend(ABC):
    """One API of objects that run apps, such as ``batch/v1`` Jobs.

    Attributes:
        name: Value of the option ``job_api``.
        api_version: The field ``apiVersion`` of the objects.
        kind: The field ``kind`` of the objects.
        missing: What to do if the API is not installed in the cluster; empty if every cluster has
            the API.
        index_label: Label of a pod that holds the index of the replica.
        index_path: Path of the pod's field that holds the index of the replica.
        host_end: The end of a pod's host name, after the name of its role, with the index.
        pod_end: A text as long as the end of a pod's name, after the end of its host name.
        make_names: Makes the names of an app and its roles in the cluster.
    """

    name: ClassVar[str]
    api_version: ClassVar[str]
    kind: ClassVar[str]
    missing: ClassVar[str] = ""
    index_label: ClassVar[str] = COMPLETION_INDEX
    # every Kubernetes version with Indexed Jobs has this annotation
    index_path: ClassVar[str] = f"metadata.annotations['{COMPLETION_INDEX}']"
    host_end: ClassVar[str] = "-{}"
    pod_end: ClassVar[str] = ""
    make_names = staticmethod(app_names)

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the API path of all objects in a namespace, or of one object."""
        plural = f"{self.kind.lower()}s"
        return object_path(f"/apis/{self.api_version}", namespace, plural, name, subresource)

    # The request.

    def places(self, app: AppDef, opts: Any) -> tuple[str, list[tuple[Role, str, Place]]]:
        """Return a new name for an app, and each role with its name and the place of its pods.

        Raises:
            RequestError: The names are too long, and the options forbid to shorten them.
        """
        most = max(role.num_replicas for role in app.roles) - 1
        app_id, names = self.make_names(
            app.name,
            [role.name for role in app.roles],
            len(self.host_end.format(most) + self.pod_end),
            shorten=not opts.validate_spec,
        )
        rank0 = f"{app_id}-{names[app.roles[0].name]}{self.host_end.format(0)}.{app_id}"
        found = []
        for index, role in enumerate(app.roles):
            name = names[role.name]
            labels, annotations = role_labels(app, index, role, app_id), pod_annotations(role, name)
            place = Place(
                app_id, opts.namespace, labels, annotations, rank0, index_path=self.index_path
            )
            found.append((role, name, place))
        return app_id, found

    @abstractmethod
    def make(self, app: AppDef, opts: Any) -> dict[str, Any]:
        """Return the object of an app, or a ``v1`` List of several objects.

        Raises:
            RequestError: An overlay is invalid, or the app cannot run with this API.
        """

    def problems(self, app: AppDef, opts: Any) -> Iterable[str]:
        """Yield an error text for each part of an app that the API does not support."""
        return ()

    def warnings(self, app: AppDef, opts: Any) -> Iterable[str]:
        """Yield a text for each part of an app that the API handles differently."""
        return ()

    # The status.

    @abstractmethod
    def view(self, app_id: str, objects: Sequence[Mapping[str, Any]]) -> AppView:
        """Return the data of an app.

        Args:
            app_id: Name of the app in the cluster.
            objects: The app's objects of this API, at least one.
        """

    def find(self, cluster: Cluster, namespace: str, app_id: str) -> AppView | None:
        """Return the data of an app, or None if it does not exist.

        Raises:
            ApiError: The cluster refuses the request.
        """
        found = cluster.get_or_none(self.path(namespace, app_id), f"find the app {app_id}")
        return self.view(app_id, [found]) if found else None

    def list(self, cluster: Cluster, namespace: str, action: str) -> Iterable[AppView]:
        """Return the data of all apps in a namespace.

        Args:
            cluster: The cluster.
            namespace: The namespace.
            action: The action in error messages, as in "cannot <action>".

        Raises:
            ApiError: The cluster refuses a request.
        """
        query = {"labelSelector": selector()}
        return [
            self.view(str(one["metadata"]["name"]), [one])
            for one in cluster.list_items(self.path(namespace), action, query)
        ]

    def name_of(self, view: AppView) -> str:
        """Return the name in an app's id."""
        return view.app_id

    def pods(self, cluster: Cluster, namespace: str, view: AppView) -> Sequence[Pod]:
        """Return all pods of an app."""
        action = f"list the pods of {view.app_id}"
        return list_pods(cluster, namespace, selector(instance=view.app_id), action)

    def own_roles(
        self, cluster: Cluster, namespace: str, view: AppView, roles: Sequence[Role]
    ) -> Sequence[Role]:
        """Return the roles of an app.

        Args:
            cluster: The cluster.
            namespace: Namespace of the app.
            view: The app's data, read from its objects.
            roles: The roles, as the objects describe them.
        """
        return roles

    def watch_query(self, app_id: str) -> dict[str, str]:
        """Return the query that selects an app's objects in a watch."""
        return {"fieldSelector": f"metadata.name={app_id}"}

    def lost_pods(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        pods: Mapping[int, Mapping[int, Sequence[Pod]]],
    ) -> dict[int, LostPods]:
        """Return the lost pods by the index of their role, for roles that may have lost a pod.

        Args:
            cluster: The cluster.
            namespace: Namespace of the app.
            view: The app's data, read from its objects.
            pods: The pods by the index of the role and the index of the replica.
        """
        return lost_pods_of_jobs(cluster, namespace, view, pods)

    def waiting_reason(self, cluster: Cluster, namespace: str, view: AppView) -> str:
        """Return why the API starts no pods of an app; empty if there is no known reason."""
        return ""

    # The end.

    def is_over(self, view: AppView) -> bool:
        """Return whether nothing is left to cancel of an app."""
        return is_terminal(view.state)

    def cancel(self, cluster: Cluster, namespace: str, view: AppView) -> None:
        """End an app's unfinished objects, and keep them, annotated as cancelled.

        Do nothing if the app has ended. The cluster deletes the pods of these objects, and with the
        pods their logs.

        Args:
            cluster: The cluster.
            namespace: Namespace of the app.
            view: The app.
        """
        if not self.is_over(view):
            when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            changes = {"metadata": {"annotations": {ANNOTATION_CANCELLED: when}}}
            self.end(cluster, namespace, view, changes, when)

    def end(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        changes: Mapping[str, Any],
        when: str,
    ) -> None:
        """End an app that has not ended, and keep its objects.

        Args:
            cluster: The cluster.
            namespace: Namespace of the app.
            view: The app.
            changes: Other changes to merge into each object: the annotation of the cancellation.
            when: The time of the cancellation, as text in the form of the API.
        """
        for resource in view.objects:
            path = self.path(namespace, str(resource["metadata"]["name"]))
            suspend(cluster, namespace, path, resource, changes, deadline=False)

    def delete(self, cluster: Cluster, namespace: str, view: AppView) -> None:
        """Delete all objects of an app. The cluster then deletes the app's pods and their logs."""
        for resource in view.objects:
            name = str(resource["metadata"]["name"])
            cluster.delete(self.path(namespace, name), f"delete {name}")
