"""The verbs of the API: create, read, list, change and delete objects of the store."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from k8s_double import errors
from k8s_double.errors import ApiError, bad_request, conflict
from k8s_double.kinds import BY_KEY, JOBS, NAMESPACES, OPERATORS, PODS, SERVICES, Kind
from k8s_double.selectors import field_selector, label_selector
from k8s_double.server import defaults, rules, schemas
from k8s_double.server.admission import Admission
from k8s_double.server.patches import json_patch, merge_patch, strategic_patch
from k8s_double.store import Object, Store, copied, now

#: The largest request body of the server, and the largest object of etcd, in bytes.
BODY_LIMIT = 3 * 1024 * 1024
ETCD_LIMIT = int(1.5 * 1024 * 1024)

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_FINALIZER = "foregroundDeletion"

Query = dict[str, str]


class Api:
    """The API server without HTTP.

    Attributes:
        operators: The operators whose custom resources are served.
        mutators: Functions that change each new object before it is checked, like mutating
            webhooks.
    """

    def __init__(self, store: Store, admission: Admission) -> None:
        self.store = store
        self.admission = admission
        self.operators: set[str] = set(OPERATORS)
        self.mutators: list[Callable[[Kind, Object], None]] = []
        self._pages: dict[str, list[Object]] = {}
        self._pages_lock = threading.Lock()
        self._addresses = 0

    def served(self, kind: Kind) -> bool:
        return not kind.operator or kind.operator in self.operators

    # Methods that create objects.

    def create(
        self, kind: Kind, namespace: str, body: bytes | Object, query: Query | None = None
    ) -> tuple[Object, list[str]]:
        """Create an object; return the object, and warnings for the client.

        Raises:
            ApiError: The object is refused.
        """
        query = query or {}
        dry = _dry_run(query)
        obj, warnings = schemas.read(kind, body, query.get("fieldValidation", "Warn"))
        obj = copied(obj)
        metadata = obj["metadata"]
        if kind.namespaced:
            if metadata.get("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the"
                    " request"
                )
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if metadata.get("resourceVersion"):
            raise ApiError(
                400, "BadRequest", "resourceVersion should not be set on objects to be created"
            )
        for key in ("uid", "creationTimestamp", "deletionTimestamp", "selfLink", "generation"):
            metadata.pop(key, None)
        if metadata.get("generateName") and not metadata.get("name"):
            tail = "".join(secrets.choice(_SUFFIX) for _ in range(5))
            metadata["name"] = metadata["generateName"][:58] + tail
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = now()
        for mutate in self.mutators:
            mutate(kind, obj)
        self._prepare(kind, obj)
        causes = rules.check(kind, obj)
        if causes:
            raise errors.invalid(kind.kind, kind.group, metadata.get("name", ""), causes)
        with self.store.lock:
            self.admission.created(kind, obj)
            if self.store.find(kind, metadata.get("namespace", ""), metadata["name"]) is not None:
                raise errors.already_exists(kind.plural, kind.group, metadata["name"])
            _fits(obj)
            return (obj if dry else self.store.create(kind, obj)), warnings

    def _prepare(self, kind: Kind, obj: Object) -> None:
        if kind.key != "namespaces" and kind.subresources:
            obj.pop("status", None)
        defaults.fill(kind, obj)
        metadata = obj["metadata"]
        if kind is PODS:
            obj["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        elif kind is JOBS:
            metadata["generation"] = 1
            obj["status"] = {}
            name, uid = metadata.get("name", ""), metadata["uid"]
            template = obj["spec"]["template"].setdefault("metadata", {})
            template["labels"] = {
                **(template.get("labels") or {}),
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": name,
                "controller-uid": uid,
                "job-name": name,
            }
            if not obj["spec"].get("manualSelector"):
                obj["spec"]["selector"] = {
                    "matchLabels": {"batch.kubernetes.io/controller-uid": uid}
                }
        elif kind is SERVICES:
            spec = obj["spec"]
            if not spec.get("clusterIP"):
                self._addresses += 1
                at = self._addresses
                spec["clusterIP"] = f"10.96.{at // 250}.{at % 250 + 1}"
            spec["clusterIPs"] = [spec["clusterIP"]]
            obj["status"] = {"loadBalancer": {}}
        elif kind is NAMESPACES:
            obj["spec"] = {"finalizers": ["kubernetes"]}
            obj["status"] = {"phase": "Active"}
            labels = metadata.setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = metadata.get("name", "")
        elif kind.operator:
            metadata["generation"] = 1

    # Methods that read objects.

    def page(self, kind: Kind, namespace: str, query: Query) -> tuple[list[Object], dict[str, Any]]:
        """Return a page of objects, and the list's metadata.

        Raises:
            ApiError: 400 for an invalid selector, 410 for an expired page.
        """
        limit = _number(query, "limit") or 0
        token = query.get("continue", "")
        version = query.get("resourceVersion", "")
        exact = version not in ("", "0") and query.get("resourceVersionMatch") == "Exact"
        if exact and (not version.isdigit() or int(version) < self.store.oldest):
            raise errors.expired(f"The provided resource version is too old: {version}")
        if token:
            with self._pages_lock:
                found = self._pages.pop(token, None)
            if found is None:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list"
                    " result. You can start a new list without the continue parameter, or use the"
                    " continue token in this response to retrieve the remainder of the results."
                    " Continuing with the provided token results in an inconsistent list - objects"
                    " that were created, modified, or deleted between the time the first chunk was"
                    " returned and now may show up in the list."
                )
        else:
            with self.store.lock:
                test = self.selected(kind, query)
                found = [obj for obj in self.store.all(kind, namespace) if test(obj)]
        metadata: dict[str, Any] = {"resourceVersion": str(self.store.version)}
        if limit and len(found) > limit:
            found, rest = found[:limit], found[limit:]
            token = base64.urlsafe_b64encode(
                json.dumps({"v": "meta.k8s.io/v1", "id": secrets.token_hex(8)}).encode()
            ).decode()
            with self._pages_lock:
                self._pages[token] = rest
            metadata["continue"] = token
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = len(rest)
        return found, metadata

    def expire_pages(self) -> None:
        """Let the remaining pages of all lists expire."""
        with self._pages_lock:
            self._pages.clear()

    @staticmethod
    def selected(kind: Kind, query: Query) -> Callable[[Object], bool]:
        """Return a function that tests whether an object matches a request's selectors."""
        labels = label_selector(query.get("labelSelector", ""))
        fields = field_selector(query.get("fieldSelector", ""), kind.key)
        return lambda obj: labels(obj) and fields(obj)

    # Methods that change objects.

    def replace(
        self, kind: Kind, namespace: str, name: str, body: bytes | Object, query: Query, sub: str
    ) -> tuple[Object, list[str]]:
        """Replace an object or its status; return the object, and warnings for the client.

        Raises:
            ApiError: The object is refused.
        """
        given, warnings = schemas.read(kind, body, query.get("fieldValidation", "Warn"))
        if given["metadata"].get("name", name) != name:
            raise bad_request(
                f"the name of the object ({given['metadata']['name']}) does not match the name on"
                f" the URL ({name})"
            )
        with self.store.lock:
            before = self.store.get(kind, namespace, name)
            return self._changed(kind, before, given, query, sub), warnings

    def patch(
        self, kind: Kind, namespace: str, name: str, body: bytes, query: Query, sub: str, type_: str
    ) -> tuple[Object, list[str]]:
        """Apply a patch; return the object, and warnings for the client.

        Raises:
            ApiError: 415 for an unknown content type, or the result is refused.
        """
        try:
            change = json.loads(body)
        except ValueError as e:
            raise bad_request(f"error decoding patch: {e}") from None
        patchers: dict[str, Callable[[Any, Any], Any]] = {
            "application/json-patch+json": json_patch,
            "application/merge-patch+json": merge_patch,
            "application/strategic-merge-patch+json": strategic_patch,
        }
        patcher = patchers.get(type_)
        if patcher is None or (kind.operator and patcher is strategic_patch):
            known = [t for t in patchers if not (kind.operator and "strategic" in t)]
            raise ApiError(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include:"
                f" {', '.join(known)}",
            )
        with self.store.lock:
            before = self.store.get(kind, namespace, name)
            after = patcher(copied(before), change)
            asked = after.get("metadata", {}).get("resourceVersion")
            given, warnings = schemas.read(kind, after, query.get("fieldValidation", "Warn"))
            given["metadata"]["resourceVersion"] = asked or before["metadata"]["resourceVersion"]
            return self._changed(kind, before, given, query, sub), warnings

    def _changed(self, kind: Kind, before: Object, given: Object, query: Query, sub: str) -> Object:
        name = before["metadata"]["name"]
        version = given["metadata"].get("resourceVersion")
        if version and version != before["metadata"]["resourceVersion"]:
            raise conflict(kind.plural, kind.group, name)
        if given["metadata"].get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
            raise conflict(
                kind.plural,
                kind.group,
                name,
                f"Precondition failed: UID in precondition: {given['metadata']['uid']}, UID in"
                f" object meta: {before['metadata']['uid']}",
            )
        after = copied(before)
        if sub == "status":
            after["status"] = given.get("status") or {}
        else:
            kept = {
                key: before["metadata"].get(key)
                for key in (
                    "uid",
                    "creationTimestamp",
                    "namespace",
                    "name",
                    "generation",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                )
            }
            after["metadata"] = {
                **given["metadata"],
                **{k: v for k, v in kept.items() if v is not None},
            }
            for key in given:
                if key not in ("metadata", "status", "apiVersion", "kind") or (
                    key == "status" and not kind.subresources
                ):
                    after[key] = given[key]
            for key in [k for k in before if k not in given and k != "status"]:
                after.pop(key)
            defaults.fill(kind, after)
            causes = rules.check_change(kind, before, after)
            if not causes:
                causes = rules.check(kind, after)
            if causes:
                raise errors.invalid(kind.kind, kind.group, name, causes)
            if after.get("spec") != before.get("spec") and "generation" in after["metadata"]:
                after["metadata"]["generation"] += 1
        _fits(after)
        if _dry_run(query):
            return after

        def put(obj: Object) -> None:
            obj.clear()
            obj.update(copied(after))

        found = self.store.mutate(kind, before["metadata"].get("namespace", ""), name, put)
        assert found is not None
        metadata = found["metadata"]
        marked = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if marked and kind is not PODS:  # the last finalizer was removed
            self.store.remove(kind, metadata.get("namespace", ""), name)
        return found

    # Methods that delete objects.

    def delete(
        self, kind: Kind, namespace: str, name: str, options: dict[str, Any]
    ) -> tuple[Object, bool]:
        """Delete an object.

        Returns:
            The object, and whether it was deleted at once.

        Raises:
            ApiError: 404 for a missing object, 409 for a precondition that does not hold, 422 for
                an unknown policy.
        """
        policy = options.get("propagationPolicy")
        if policy is None and options.get("orphanDependents") is not None:
            policy = "Orphan" if options["orphanDependents"] else "Background"
        if policy not in (None, "Background", "Foreground", "Orphan"):
            raise errors.invalid(
                "DeleteOptions",
                "meta.k8s.io",
                "",
                [
                    errors.unsupported_value(
                        "propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]
                    )
                ],
            )
        if policy is None:  # Jobs have another default, for compatibility with old clients
            policy = "Orphan" if kind is JOBS else "Background"
        with self.store.lock:
            obj = self.store.get(kind, namespace, name)
            _preconditions(kind, obj, options.get("preconditions") or {})
            if "All" in (options.get("dryRun") or []):
                return obj, True
            if kind is PODS:
                return self._delete_pod(obj, options)
            if policy == "Orphan":
                for key, dependent in self.store.owned(obj["metadata"]["uid"]):
                    self._disown(BY_KEY[key], dependent, obj["metadata"]["uid"])
            finalizers = list(obj["metadata"].get("finalizers") or [])
            if policy == "Foreground" and _FINALIZER not in finalizers:
                finalizers.append(_FINALIZER)
            if not finalizers:
                return self.store.remove(kind, namespace, name) or obj, True

            def mark(found: Object) -> None:
                found["metadata"].setdefault("deletionTimestamp", now())
                found["metadata"]["deletionGracePeriodSeconds"] = 0
                found["metadata"]["finalizers"] = finalizers

            return self.store.mutate(kind, namespace, name, mark) or obj, False

    def _delete_pod(self, pod: Object, options: dict[str, Any]) -> tuple[Object, bool]:
        """Delete a pod.

        A pod without a node is deleted without a grace period, but stays until its finalizers are
        removed. The double ignores the finalizers of a pod that has a node: see
        :meth:`k8s_double.controllers.jobs.JobController.pod_gone`.
        """
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        is_bound = bool(pod["spec"].get("nodeName"))
        if not is_bound and metadata.get("finalizers"):

            def mark_unbound(found: Object) -> None:
                found["metadata"].setdefault("deletionTimestamp", now())
                found["metadata"]["deletionGracePeriodSeconds"] = 0

            return self.store.mutate(PODS, namespace, name, mark_unbound) or pod, False
        if not is_bound or ended or grace <= 0:
            return self.store.remove(PODS, namespace, name) or pod, True
        left = metadata.get("deletionGracePeriodSeconds")
        if left is not None and left <= grace:
            return pod, False
        end = datetime.now(timezone.utc) + timedelta(seconds=grace)

        def mark(found: Object) -> None:
            found["metadata"]["deletionTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
            found["metadata"]["deletionGracePeriodSeconds"] = grace

        return self.store.mutate(PODS, namespace, name, mark) or pod, False

    def _disown(self, kind: Kind, obj: Object, uid: str) -> None:
        def change(found: Object) -> None:
            owners = found["metadata"].get("ownerReferences") or []
            left = [owner for owner in owners if owner["uid"] != uid]
            if left:
                found["metadata"]["ownerReferences"] = left
            else:
                found["metadata"].pop("ownerReferences", None)

        metadata = obj["metadata"]
        self.store.mutate(kind, metadata.get("namespace", ""), metadata["name"], change)

    def collect(self) -> None:
        """Delete objects whose owners were all deleted, and continue foreground deletions."""
        with self.store.lock:
            for kind in BY_KEY.values():
                for obj in self.store.all(kind):
                    metadata = obj["metadata"]
                    owners = metadata.get("ownerReferences") or []
                    gone = owners and not any(self.store.has_uid(o["uid"]) for o in owners)
                    if gone and not metadata.get("deletionTimestamp"):
                        self.delete(
                            kind,
                            metadata.get("namespace", ""),
                            metadata["name"],
                            {"propagationPolicy": "Background"},
                        )
                    elif metadata.get("deletionTimestamp") and _FINALIZER in (
                        metadata.get("finalizers") or []
                    ):
                        self._foreground(kind, obj)

    def _foreground(self, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        blocking = False
        for key, dependent in self.store.owned(metadata["uid"]):
            inner = dependent["metadata"]
            refs = [o for o in inner["ownerReferences"] if o["uid"] == metadata["uid"]]
            if not inner.get("deletionTimestamp"):
                options = {"propagationPolicy": "Foreground"}
                self.delete(BY_KEY[key], inner.get("namespace", ""), inner["name"], options)
            still = self.store.find(BY_KEY[key], inner.get("namespace", ""), inner["name"])
            if still is not None and any(o.get("blockOwnerDeletion") for o in refs):
                blocking = True
        if not blocking:
            self.store.remove(kind, metadata.get("namespace", ""), metadata["name"])


def _preconditions(kind: Kind, obj: Object, asked: dict[str, Any]) -> None:
    for key, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, actual = asked.get(key), obj["metadata"].get(key)
        if wanted is not None and wanted != actual:
            raise conflict(
                kind.plural,
                kind.group,
                obj["metadata"]["name"],
                f"Precondition failed: {words} in precondition: {wanted}, {words} in object meta:"
                f" {actual}",
            )


def _dry_run(query: Query) -> bool:
    asked = query.get("dryRun", "")
    if asked not in ("", "All"):
        raise errors.invalid(
            "CreateOptions",
            "meta.k8s.io",
            "",
            [errors.unsupported_value("dryRun", asked, ["All"])],
        )
    return asked == "All"


def _number(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _fits(obj: Object) -> None:
    size = len(json.dumps(obj, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > ETCD_LIMIT:
        raise ApiError(500, "", "etcdserver: request is too large")
