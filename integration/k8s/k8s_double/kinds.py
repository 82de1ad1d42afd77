"""The kinds of objects that the double serves."""

from __future__ import annotations

from dataclasses import dataclass

_CORE = "io.k8s.api.core.v1."
_BATCH = "io.k8s.api.batch.v1."
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    Attributes:
        group: Group of the API; empty for the core group.
        version: Version of the API.
        plural: Name of the kind in paths, such as ``jobs``.
        kind: Name of the kind in objects, such as ``Job``.
        schema: Name of the schema of the kind's objects.
        namespaced: Whether the kind's objects are in namespaces.
        subresources: Subresources of each object.
        operator: The operator that defines the kind; empty for kinds of Kubernetes.
    """

    group: str
    version: str
    plural: str
    kind: str
    schema: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    operator: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """Name of the kind in the store."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


KINDS = (
    Kind("", "v1", "namespaces", "Namespace", f"{_CORE}Namespace", False, ("status",)),
    Kind("", "v1", "nodes", "Node", f"{_CORE}Node", False, ("status",)),
    Kind(
        "",
        "v1",
        "pods",
        "Pod",
        f"{_CORE}Pod",
        True,
        ("status", "log", "eviction", "exec", "portforward"),
    ),
    Kind("", "v1", "services", "Service", f"{_CORE}Service", True, ("status",)),
    Kind("", "v1", "events", "Event", f"{_CORE}Event"),
    Kind("", "v1", "secrets", "Secret", f"{_CORE}Secret"),
    Kind("", "v1", "configmaps", "ConfigMap", f"{_CORE}ConfigMap"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", f"{_CORE}ServiceAccount"),
    Kind("", "v1", "resourcequotas", "ResourceQuota", f"{_CORE}ResourceQuota", True, ("status",)),
    Kind(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        f"{_CORE}PersistentVolumeClaim",
        True,
        ("status",),
    ),
    Kind("batch", "v1", "jobs", "Job", f"{_BATCH}Job", True, ("status",)),
    Kind(_RBAC, "v1", "roles", "Role", "io.k8s.api.rbac.v1.Role"),
    Kind(_RBAC, "v1", "rolebindings", "RoleBinding", "io.k8s.api.rbac.v1.RoleBinding"),
    Kind(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        "io.k8s.api.scheduling.v1.PriorityClass",
        False,
    ),
    Kind(
        "jobset.x-k8s.io",
        "v1alpha2",
        "jobsets",
        "JobSet",
        "double.JobSet",
        True,
        ("status",),
        "jobset",
    ),
    Kind(
        "batch.volcano.sh",
        "v1alpha1",
        "jobs",
        "Job",
        "double.VolcanoJob",
        True,
        ("status",),
        "volcano",
    ),
    Kind(
        "scheduling.volcano.sh",
        "v1beta1",
        "queues",
        "Queue",
        "double.VolcanoQueue",
        False,
        ("status",),
        "volcano",
    ),
    Kind(
        "workload.codeflare.dev",
        "v1beta1",
        "appwrappers",
        "AppWrapper",
        "double.AppWrapper",
        True,
        ("status",),
        "mcad",
    ),
    Kind(
        "scheduling.sigs.k8s.io",
        "v1alpha1",
        "podgroups",
        "PodGroup",
        "double.PodGroup",
        True,
        ("status",),
        "mcad",
    ),
    Kind(
        "kueue.x-k8s.io",
        "v1beta1",
        "workloads",
        "Workload",
        "double.Workload",
        True,
        ("status",),
        "kueue",
    ),
    Kind(
        "kueue.x-k8s.io",
        "v1beta1",
        "localqueues",
        "LocalQueue",
        "double.LocalQueue",
        True,
        ("status",),
        "kueue",
    ),
)
BY_KEY = {kind.key: kind for kind in KINDS}
OPERATORS = frozenset(kind.operator for kind in KINDS if kind.operator)

PODS = BY_KEY["pods"]
JOBS = BY_KEY["jobs.batch"]
SERVICES = BY_KEY["services"]
EVENTS = BY_KEY["events"]
NAMESPACES = BY_KEY["namespaces"]
NODES = BY_KEY["nodes"]
ROLES = BY_KEY[f"roles.{_RBAC}"]
ROLE_BINDINGS = BY_KEY[f"rolebindings.{_RBAC}"]
SERVICE_ACCOUNTS = BY_KEY["serviceaccounts"]
