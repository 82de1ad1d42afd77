"""The checks of a request before it changes an object: rights, quotas, webhooks, references."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from decimal import Decimal

from k8s_double import quantities
from k8s_double.errors import ApiError, forbidden, not_found, qualified
from k8s_double.identity import ACCOUNT
from k8s_double.kinds import BY_KEY, JOBS, NAMESPACES, PODS, ROLE_BINDINGS, ROLES, Kind
from k8s_double.store import Object, Store


@dataclass
class Fault:
    """A response that a test sets in place of the normal response.

    Attributes:
        code: HTTP status code; 0 closes the connection without a response.
        method: Regular expression of the HTTP method.
        path: Regular expression, searched for in path and query.
        count: How many requests get the fault; -1 for all.
        after: How many matching requests get the normal response before the first fault.
        message: Message of the Status; empty for a default message.
        retry_after: Value of the ``Retry-After`` header, in seconds.
        plain: Whether the response is plain text, as from a proxy, instead of a Status.
        served: Whether the request is carried out, so that only its response is lost.
    """

    code: int
    method: str = ".*"
    path: str = ""
    count: int = 1
    after: int = 0
    message: str = ""
    retry_after: int | None = None
    plain: bool = False
    served: bool = False


@dataclass
class Webhook:
    """A validating admission webhook that refuses new Jobs."""

    name: str
    message: str


@dataclass
class Denial:
    """A right that users lack.

    ``*`` matches any verb or resource. An empty namespace matches any.
    """

    verb: str
    resource: str
    namespace: str = ""


_FAULT_WORDS = {
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: the double was asked to fail"),
    503: ("ServiceUnavailable", "apiserver is shutting down"),
    504: ("Timeout", "Timeout: request did not complete within requested timeout"),
}


class Admission:
    """Checks requests; contains the faults, webhooks and denials that tests add."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.faults: list[Fault] = []
        self.webhooks: list[Webhook] = []
        self.denials: list[Denial] = []
        self._lock = threading.Lock()

    def fault(self, method: str, target: str) -> Fault | None:
        """Return the fault that applies to a request, or None; reduce its ``count`` by one."""
        with self._lock:
            for fault in self.faults:
                if not re.fullmatch(fault.method, method) or not re.search(fault.path, target):
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                if fault.count > 0:
                    fault.count -= 1
                    if fault.count == 0:
                        self.faults.remove(fault)
                return fault
        return None

    def rights(self, user: str, verb: str, kind: Kind, sub: str, namespace: str, name: str) -> None:
        """Check a request as role-based access control does.

        Raises:
            ApiError: 403 if the user lacks the right.
        """
        resource = f"{kind.plural}/{sub}" if sub else kind.plural
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        words = f'User "{user}" cannot {verb} resource "{resource}" in API group "{kind.group}"'
        if user.startswith(ACCOUNT) and not self._allowed(
            user, verb, kind.group, resource, namespace, name
        ):
            raise forbidden(kind.plural, kind.group, name, words + where)
        for denial in self.denials:
            if denial.verb not in ("*", verb):
                continue
            if denial.resource not in ("*", resource, qualified(kind.plural, kind.group)):
                continue
            if denial.namespace and denial.namespace != namespace:
                continue
            raise forbidden(kind.plural, kind.group, name, words + where)

    def _allowed(
        self, user: str, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> bool:
        """Return whether a role bound to a service account allows a request."""
        own, account = user.removeprefix(ACCOUNT).split(":")
        for binding in self.store.all(ROLE_BINDINGS, namespace) if namespace else ():
            subjects = [
                (one.get("kind"), one.get("namespace"), one.get("name"))
                for one in binding.get("subjects") or []
            ]
            if ("ServiceAccount", own, account) not in subjects:
                continue
            role = self.store.find(ROLES, namespace, binding["roleRef"]["name"]) or {}
            for rule in role.get("rules") or []:
                names = rule.get("resourceNames")
                if (
                    {verb, "*"} & set(rule["verbs"])
                    and {group, "*"} & set(rule.get("apiGroups") or [])
                    and {resource, "*"} & set(rule.get("resources") or [])
                    # requests to create an object or to list objects contain no name
                    and (not names or (name and name in names))
                ):
                    return True
        return False

    def granting(self, user: str, kind: Kind, namespace: str, obj: Object) -> None:
        """Check a new role or binding: nobody may grant rights that they lack.

        The role of a binding must therefore exist. Users of kubeconfigs may grant everything,
        unless the right to ``bind`` roles is denied.

        Raises:
            ApiError: 403 for rights that the user lacks, 404 for a missing role.
        """
        name = str((obj.get("metadata") or {}).get("name") or "")
        if kind is ROLE_BINDINGS:
            bound = str((obj.get("roleRef") or {}).get("name") or "")
            limited = user.startswith(ACCOUNT) or any(
                denial.verb == "bind" for denial in self.denials
            )
            if not limited:
                return
            found = self.store.find(ROLES, namespace, bound)
            if found is None:
                raise not_found(ROLES.plural, ROLES.group, bound)
            obj = found
        if not user.startswith(ACCOUNT):
            return
        for rule in obj.get("rules") or []:
            for group in rule.get("apiGroups") or []:
                for resource in rule.get("resources") or []:
                    for verb in rule.get("verbs") or []:
                        if self._allowed(user, verb, group, resource, namespace, ""):
                            continue
                        rights = f'{{APIGroups:["{group}"], Resources:["{resource}"],'
                        raise forbidden(
                            kind.plural,
                            kind.group,
                            name,
                            f'user "{user}" (groups=["system:serviceaccounts"]) is attempting to'
                            f" grant RBAC permissions not currently held:\n{rights}"
                            f' Verbs:["{verb}"]}}',
                        )

    def created(self, kind: Kind, obj: Object) -> None:
        """Check a new object.

        Raises:
            ApiError: A check refuses the object.
        """
        namespace = obj["metadata"].get("namespace", "")
        name = obj["metadata"]["name"]
        if kind.namespaced:
            found = self.store.find(NAMESPACES, "", namespace)
            if found is None:
                raise not_found("namespaces", "", namespace)
            if found["metadata"].get("deletionTimestamp"):
                why = f"unable to create new content in namespace {namespace}"
                why += " because it is being terminated"
                raise forbidden(kind.plural, kind.group, name, why)
        if kind is PODS:
            self._references(obj)
            self._security(obj)
        self._hooks(kind, obj)
        if kind.namespaced:
            self._quotas(kind, obj)

    def _hooks(self, kind: Kind, obj: Object) -> None:
        """Call the webhooks.

        Raises:
            ApiError: A webhook refuses the object.
        """
        if kind.key == "jobs.batch.volcano.sh":
            self._volcano_queue(obj)
        if kind is JOBS and self.webhooks:
            hook = self.webhooks[0]
            words = f'admission webhook "{hook.name}" denied the request: {hook.message}'
            raise ApiError(403, "Forbidden", words)

    def _volcano_queue(self, job: Object) -> None:
        """Refuse a Volcano Job without a queue, as Volcano's own webhook does.

        The text is that of pkg/webhooks/admission/jobs/validate/admit_job.go of Volcano.
        """
        queues = BY_KEY["queues.scheduling.volcano.sh"]
        name = job["spec"].get("queue") or "default"
        if self.store.find(queues, "", name) is None:
            raise ApiError(
                403,
                "Forbidden",
                'admission webhook "validatejob.volcano.sh" denied the request: unable to find job'
                f' queue: queues.scheduling.volcano.sh "{name}" not found;',
            )

    def _references(self, pod: Object) -> None:
        namespace, name = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
        account = pod["spec"].get("serviceAccountName") or "default"
        if self.store.find(BY_KEY["serviceaccounts"], namespace, account) is None:
            raise forbidden(
                "pods",
                "",
                name,
                f"error looking up service account {namespace}/{account}: serviceaccount"
                f' "{account}" not found',
            )
        priority = pod["spec"].get("priorityClassName")
        if not priority:
            return
        known = self.store.find(BY_KEY["priorityclasses.scheduling.k8s.io"], "", priority)
        if known is not None:
            pod["spec"]["priority"] = known.get("value", 0)
        elif not priority.startswith("system-"):
            raise forbidden("pods", "", name, f"no PriorityClass with name {priority} was found")

    def _security(self, pod: Object) -> None:
        """Check a pod by the restricted Pod Security Standard, if its namespace enforces it."""
        found = self.store.find(NAMESPACES, "", pod["metadata"]["namespace"]) or {"metadata": {}}
        labels = found["metadata"].get("labels") or {}
        if labels.get("pod-security.kubernetes.io/enforce") != "restricted":
            return
        spec = pod["spec"]
        own = spec.get("securityContext") or {}
        wrong = []
        for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
            context = {**own, **(container.get("securityContext") or {})}
            where = f'container "{container["name"]}" must set securityContext.'
            if context.get("privileged"):
                wrong.append(f"privileged ({where}privileged=false)")
            if context.get("allowPrivilegeEscalation") is not False:
                wrong.append(f"allowPrivilegeEscalation != false ({where}allowPrivilegeEscalation")
            if "ALL" not in ((context.get("capabilities") or {}).get("drop") or []):
                wrong.append(f'unrestricted capabilities ({where}capabilities.drop=["ALL"])')
            if context.get("runAsNonRoot") is not True:
                wrong.append(f"runAsNonRoot != true ({where}runAsNonRoot=true)")
            if (context.get("seccompProfile") or {}).get("type") not in (
                "RuntimeDefault",
                "Localhost",
            ):
                wrong.append(f"seccompProfile ({where}seccompProfile.type)")
        allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "projected"}
        allowed |= {"persistentVolumeClaim", "secret", "name"}
        for volume in spec.get("volumes") or []:
            wrong += [f'restricted volume types ("{kind}")' for kind in volume.keys() - allowed]
        if wrong:
            words = f'violates PodSecurity "restricted:latest": {", ".join(wrong)}'
            raise forbidden("pods", "", pod["metadata"]["name"], words)

    def _quotas(self, kind: Kind, obj: Object) -> None:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        for quota in self.store.all(BY_KEY["resourcequotas"], namespace):
            hard = {k: quantities.parsed(v) for k, v in (quota["spec"].get("hard") or {}).items()}
            asked = {k: v for k, v in usage(kind, obj).items() if k in hard}
            if kind is PODS:
                wanted = [k for k in hard if k.partition(".")[0] in ("requests", "limits")]
                lacking = [k for k in wanted if k not in asked and k.endswith(("cpu", "memory"))]
                if lacking:
                    containers = ",".join(c["name"] for c in obj["spec"]["containers"])
                    told = "; ".join(f"{k} for: {containers}" for k in sorted(lacking))
                    raise forbidden(
                        kind.plural,
                        kind.group,
                        name,
                        f"failed quota: {quota['metadata']['name']}: must specify {told}",
                    )
            if not asked:
                continue
            used: dict[str, Decimal] = dict.fromkeys(asked, Decimal(0))
            for other in self.store.all(kind, namespace):
                if kind is PODS and (other.get("status") or {}).get("phase") in (
                    "Succeeded",
                    "Failed",
                ):
                    continue
                for key, amount in usage(kind, other).items():
                    if key in used:
                        used[key] += amount
            over = sorted(k for k in asked if used[k] + asked[k] > hard[k])
            if over:

                def told_of(amounts: dict[str, Decimal], names: list[str] = over) -> str:
                    return ",".join(f"{k}={quantities.shown(amounts[k])}" for k in names)

                limits = ",".join(f"{k}={quota['spec']['hard'][k]}" for k in over)
                raise forbidden(
                    kind.plural,
                    kind.group,
                    name,
                    f"exceeded quota: {quota['metadata']['name']}, requested: {told_of(asked)},"
                    f" used: {told_of(used)}, limited: {limits}",
                )

    def answer(self, fault: Fault) -> ApiError:
        """Return the response of a fault."""
        reason, words = _FAULT_WORDS.get(fault.code, ("", "the double was asked to fail"))
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        details = {} if fault.retry_after is None else {"retryAfterSeconds": fault.retry_after}
        return ApiError(fault.code, reason, fault.message or words, details, headers)


def usage(kind: Kind, obj: Object) -> dict[str, Decimal]:
    """Return the amounts that an object uses, by the names of the resources in quotas."""
    found = {f"count/{qualified(kind.plural, kind.group)}": Decimal(1)}
    if kind is JOBS or not kind.group:
        found[kind.plural] = Decimal(1)
    if kind is PODS:
        for container in obj["spec"].get("containers") or []:
            for part in ("requests", "limits"):
                for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
                    key = f"{part}.{name}"
                    found[key] = found.get(key, Decimal(0)) + quantities.parsed(amount)
                    if part == "requests" and name in ("cpu", "memory"):
                        found[name] = found[key]
    return found
