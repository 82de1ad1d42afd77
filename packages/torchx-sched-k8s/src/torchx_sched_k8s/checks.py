"""Checks of the cluster, its operators and the user's rights, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from torchx_kit.checks import error, ok, warning
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.kubeconfig import context_in, credentials_name, default_namespace
from torchx_sched_k8s.cluster.kueue import KUEUE_VERSIONS
from torchx_specs.errors import TorchXError
from torchx_specs.options.run_options import CfgVal
from torchx_specs.plugins.check_results import CheckResult

#: The oldest supported version of Kubernetes.
OLDEST_VERSION = (1, 29)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Operator(NamedTuple):
    """An operator whose API an option or a scheduler needs.

    Attributes:
        name: Name of the operator in messages.
        group: API group of the operator.
        use: The option or scheduler that needs the operator.
        install: URL with instructions to install the operator.
        versions: Versions of the API that this package can use.
    """

    name: str
    group: str
    use: str
    install: str
    versions: tuple[str, ...]


_JOBSET = Operator(
    "JobSet",
    "jobset.x-k8s.io",
    "job_api=jobset",
    "https://jobset.sigs.k8s.io/docs/installation/",
    ("v1alpha2",),
)
_KUEUE = Operator(
    "Kueue",
    "kueue.x-k8s.io",
    "queue",
    "https://kueue.sigs.k8s.io/docs/installation/",
    KUEUE_VERSIONS,
)
_VOLCANO = Operator(
    "Volcano",
    "batch.volcano.sh",
    "job_api=volcano",
    "https://volcano.sh/en/docs/installation/",
    ("v1alpha1",),
)

VERBS = ("create", "get", "list", "patch", "delete")


class Right(NamedTuple):
    """A right in a namespace.

    Attributes:
        group: API group of the resource.
        resource: Plural of the resource, and the sub-resource after a slash.
        verbs: The verbs.
        effect: What happens without the right, for the warning; empty if no job works without it.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    effect: str = ""


_SEVERAL_ROLES = "when a role of an app of plain Jobs fails for good, the others run on"
_SWEEPS = "each element of a sweep is a Job of its own"
_PODS = "single elements of an array cannot be cancelled"
#: The rights for jobs of every API.
_RIGHTS = (
    Right("", "pods", ("list",)),
    Right("", "pods/log", ("get",)),
    Right("", "events", ("list",), "status shows fewer reasons"),
    Right("", "pods/exec", ("get",), "'torchx exec', 'shell' and 'cp' do not work"),
    Right("", "pods/portforward", ("get",), "'torchx forward' does not work"),
)
#: The further rights for the jobs of each API.
_RIGHTS_OF_API = {
    "batch": (
        Right("batch", "jobs", VERBS),
        Right("", "services", ("create", "delete")),
        Right("", "pods", ("delete",), _PODS),
        Right("", "configmaps", ("create", "get", "patch"), _SWEEPS),
        Right("", "serviceaccounts", ("create",), _SEVERAL_ROLES),
        Right("rbac.authorization.k8s.io", "roles", ("create",), _SEVERAL_ROLES),
        Right("rbac.authorization.k8s.io", "rolebindings", ("create",), _SEVERAL_ROLES),
    ),
    "jobset": (Right(_JOBSET.group, "jobsets", VERBS),),
    "volcano": (
        Right(_VOLCANO.group, "jobs", VERBS),
        Right(_VOLCANO.group, "jobs/status", ("patch",)),
    ),
}
#: The further right for jobs in a queue of Kueue.
_KUEUE_RIGHT = Right(_KUEUE.group, "workloads", ("list", "patch"))
#: The further right for jobs with the option ``requeue``, which their supervisor gets.
_ATTEMPTS_RIGHT = Right("", "pods", ("watch", "patch"))
_UNAUTHORIZED = 401


def check_cluster(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield the library's version, the credentials' name, and whether the cluster answers.

    Args:
        cfg: The scheduler's options.
    """
    from kubernetes import __version__ as library

    try:
        with closing(_connect(cfg)) as cluster:
            address = cluster.address
            yield ok(f"kubernetes library {library}, {credentials_name(context_in(cfg))}")
            major, minor = cluster.version()
    except TorchXError as e:
        yield error(str(e).partition("; set KUBECONFIG")[0], _remedy(str(e)))
        return
    found = f"Kubernetes {major}.{minor} at {address}"
    if (major, minor) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        yield warning(
            f"{found}; this release of torchx-sched-k8s supports {oldest} and later",
            "ask the cluster's administrators for an upgrade",
        )
    else:
        yield ok(found)


def _remedy(message: str) -> str:
    if "no cluster is configured" in message or "KUBECONFIG" in message:
        return "set KUBECONFIG to the path of a kubeconfig, or run inside a cluster"
    if "credentials" in message:
        return "log in to the cluster again, as its documentation says; then try 'kubectl get pods'"
    return "check with 'kubectl cluster-info' that the network reaches the API server"


def check_operators(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield a result for each of the operators JobSet, Kueue and Volcano.

    The result is an error if the options need the operator and the cluster has no usable version.
    Yield nothing if the cluster cannot be read and :func:`check_cluster` reports this problem.

    Args:
        cfg: The options of ``kubernetes``.
    """
    job_api, uses_kueue = _apis(cfg)
    needed = {_JOBSET: job_api == "jobset", _VOLCANO: job_api == "volcano", _KUEUE: uses_kueue}
    yield from check_groups(cfg, needed)


def check_groups(
    cfg: Mapping[str, CfgVal], needed: Mapping[Operator, bool]
) -> Iterator[CheckResult]:
    """Yield a result for each operator: whether the cluster serves a version that we support.

    Args:
        cfg: The scheduler's options.
        needed: Maps each operator to whether the options need it.
    """
    try:
        with closing(_connect(cfg)) as cluster:
            groups = cluster.get("/apis", "list the API groups").get("groups") or ()
    except TorchXError as e:
        yield from _unless_reported(e)
        return
    served = {g["name"]: [v["version"] for v in g.get("versions") or ()] for g in groups}
    for operator, is_needed in needed.items():
        versions = served.get(operator.group)
        if versions is None:
            if is_needed:
                yield error(
                    f"{operator.name} is not installed, and your options need it ({operator.use})",
                    f"ask the cluster's administrators: {operator.install}",
                )
            else:
                yield ok(f"{operator.name} is not installed; only {operator.use} needs it")
        elif not set(versions) & set(operator.versions):
            report = error if is_needed else warning
            supported = ", ".join(operator.versions)
            yield report(
                f"{operator.name} has the versions {', '.join(versions)}, and this release"
                f" supports {supported}",
                f"upgrade torchx-sched-k8s or {operator.name}",
            )
        else:
            yield ok(f"{operator.name}: {', '.join(versions)}")


def check_rights(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether the user has the rights that jobs need, in the namespace of the options.

    Args:
        cfg: The options of ``kubernetes``.
    """
    job_api, uses_kueue = _apis(cfg)
    rights = _RIGHTS_OF_API.get(job_api, _RIGHTS_OF_API["batch"])
    if uses_kueue:
        rights = (*rights, _KUEUE_RIGHT)
    if cfg.get("requeue") or cfg.get("resume_dir"):
        rights = (*rights, _ATTEMPTS_RIGHT)
    yield from check_listed_rights(cfg, rights)


def check_listed_rights(
    cfg: Mapping[str, CfgVal], rights: Iterable[Right]
) -> Iterator[CheckResult]:
    """Yield an error for the missing rights without which no job works, and warnings for others.

    Args:
        cfg: The scheduler's options.
        rights: The rights for the jobs of the scheduler's API.
    """
    namespace = str(cfg.get("namespace") or "") or default_namespace(context_in(cfg))
    missing: dict[str, list[str]] = {"": []}
    try:
        with closing(_connect(cfg)) as cluster:
            for right in (*rights, *_RIGHTS):
                denied = [v for v in right.verbs if not _may(cluster, namespace, right, v)]
                if denied:
                    lost = f"{', '.join(denied)} {right.resource}"
                    missing.setdefault(right.effect, []).append(lost)
    except TorchXError as e:
        yield from _unless_reported(e)
        return
    if essential := missing.pop(""):
        yield error(
            f"in namespace {namespace}, you may not {'; '.join(essential)}",
            "ask for a Role that allows this, or set the option namespace",
        )
    else:
        yield ok(f"you have the rights that jobs need in namespace {namespace}")
    for effect, rights_lost in missing.items():
        yield warning(
            f"in namespace {namespace}, you may not {'; '.join(rights_lost)}: {effect}",
            "ask for a Role that allows this",
        )


def _unless_reported(problem: TorchXError) -> Iterator[CheckResult]:
    """Yield a warning if the cluster refused a request although it accepts the credentials.

    Yield nothing for all other problems: :func:`check_cluster` reports them.
    """
    if isinstance(problem, ApiError) and problem.status != _UNAUTHORIZED:
        yield warning(problem, "ask the cluster's administrators for the right to this request")


def _may(cluster: Cluster, namespace: str, right: Right, verb: str) -> bool:
    """Return whether the user has a right; the cluster answers a SelfSubjectAccessReview."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = cluster.request("POST", _REVIEWS, "check your rights", body=review)
    return bool((answer.get("status") or {}).get("allowed"))


def _apis(cfg: Mapping[str, CfgVal]) -> tuple[str, bool]:
    """Return the option ``job_api`` with its default resolved, and whether jobs wait in Kueue."""
    job_api = str(cfg.get("job_api") or ("volcano" if cfg.get("queue") else "batch"))
    return job_api, bool(cfg.get("queue")) and job_api != "volcano"


def _connect(cfg: Mapping[str, CfgVal]) -> Cluster:
    cluster = Cluster(context=context_in(cfg))
    cluster.patience = 0
    return cluster
