"""The objects, their versions and their changes."""

from __future__ import annotations

import json
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple

from k8s_double import errors
from k8s_double.kinds import EVENTS, Kind

#: How many changes are kept for watches.
HISTORY = 50_000

Object = dict[str, Any]


def controlled_by(obj: Object) -> dict[str, Any]:
    """Return an owner reference to ``obj``, for objects that a controller creates for it."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def now() -> str:
    """Return the present time in the form of the API: UTC, in whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def copied(obj: Any) -> Any:
    """Return a copy of plain data."""
    if isinstance(obj, dict):
        return {key: copied(value) for key, value in obj.items()}
    if isinstance(obj, list):
        return [copied(value) for value in obj]
    return obj


class Change(NamedTuple):
    """One change of an object; ``before`` is the old object, or None if the object is new."""

    version: int
    type: str
    key: str
    obj: Object
    before: Object | None


class Store:
    """All objects. Callers must not modify returned objects; they call :meth:`mutate` instead.

    Attributes:
        lock: Held while objects are read and changed.
        changed: Notified at each change.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 1000
        self.oldest = 1000
        self.history: deque[Change] = deque(maxlen=HISTORY)
        self.listeners: list[Callable[[Change], None]] = []
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._text: dict[tuple[str, int], bytes] = {}
        self._owned: dict[str, dict[tuple[str, str, str], None]] = {}
        self._uids: set[str] = set()
        self._told: dict[tuple[str, str, str], str] = {}

    # Methods that read objects.

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        with self.lock:
            return self._objects.get(kind.key, {}).get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return an object.

        Raises:
            ApiError: 404 if the object does not exist.
        """
        found = self.find(kind, namespace, name)
        if found is None:
            raise errors.not_found(kind.plural, kind.group, name)
        return found

    def all(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a kind, sorted by namespace and name.

        An empty ``namespace`` means all namespaces.
        """
        with self.lock:
            found = self._objects.get(kind.key, {})
            keys = sorted(key for key in found if not namespace or key[0] == namespace)
            return [found[key] for key in keys]

    def owned(self, uid: str, kind: Kind | None = None) -> list[tuple[str, Object]]:
        """Return the objects with an owner of this uid, each with the key of its kind."""
        with self.lock:
            return [
                (key, self._objects[key][(namespace, name)])
                for key, namespace, name in list(self._owned.get(uid, ()))
                if kind is None or key == kind.key
            ]

    def has_uid(self, uid: str) -> bool:
        with self.lock:
            return uid in self._uids

    def text(self, kind: Kind, obj: Object) -> bytes:
        """Return an object as JSON; the text of each version is cached."""
        at = (kind.key, int(obj["metadata"].get("resourceVersion") or 0))
        found = self._text.get(at)
        if found is None:
            found = json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()
            if at[1]:
                with self.lock:
                    if len(self._text) > 20_000:
                        self._text.clear()
                    self._text[at] = found
        return found

    # Methods that write objects.

    def create(self, kind: Kind, obj: Object) -> Object:
        """Store a new object with a uid, a time and a version.

        Raises:
            ApiError: 409 if an object of that name exists.
        """
        obj = copied(obj)
        metadata = obj["metadata"]
        with self.lock:
            at = (metadata.get("namespace", ""), metadata["name"])
            if at in self._objects.setdefault(kind.key, {}):
                raise errors.already_exists(kind.plural, kind.group, metadata["name"])
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", now())
            self._put(kind, at, obj, None)
        return obj

    def mutate(
        self, kind: Kind, namespace: str, name: str, change: Callable[[Object], object]
    ) -> Object | None:
        """Change an object by a function; return the new object, or None if it does not exist."""
        with self.lock:
            before = self.find(kind, namespace, name)
            if before is None:
                return None
            obj = copied(before)
            change(obj)
            if obj == before:
                return before
            self._put(kind, (namespace, name), obj, before)
            return obj

    def remove(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Remove an object; return its last state, or None if it does not exist."""
        with self.lock:
            before = self._objects.get(kind.key, {}).pop((namespace, name), None)
            if before is None:
                return None
            self._uids.discard(before["metadata"]["uid"])
            self._disown(kind, (namespace, name), before)
            obj = copied(before)
            self._tell(kind, "DELETED", obj, before)
            return obj

    def forget(self) -> None:
        """Forget the changes so far, so that watches that continue from them get 410."""
        with self.lock:
            self.history.clear()
            self.oldest = self.version
            self.changed.notify_all()

    def _put(self, kind: Kind, at: tuple[str, str], obj: Object, before: Object | None) -> None:
        if before is not None:
            self._disown(kind, at, before)
        self._objects[kind.key][at] = obj
        self._uids.add(obj["metadata"]["uid"])
        for owner in obj["metadata"].get("ownerReferences") or []:
            self._owned.setdefault(owner["uid"], {})[(kind.key, *at)] = None
        self._tell(kind, "MODIFIED" if before else "ADDED", obj, before)

    def _disown(self, kind: Kind, at: tuple[str, str], obj: Object) -> None:
        for owner in obj["metadata"].get("ownerReferences") or []:
            held = self._owned.get(owner["uid"], {})
            held.pop((kind.key, *at), None)
            if not held:
                self._owned.pop(owner["uid"], None)

    def _tell(self, kind: Kind, type_: str, obj: Object, before: Object | None) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        if len(self.history) == HISTORY:
            self.oldest = self.history[0].version
        change = Change(self.version, type_, kind.key, obj, before)
        self.history.append(change)
        self.changed.notify_all()
        for listener in self.listeners:
            listener(change)

    # Methods for watches.

    def since(self, version: int, key: str) -> Iterator[Change]:
        """Return the changes of a kind after a version.

        Raises:
            ApiError: 410 if some of these changes were forgotten.
        """
        with self.lock:
            if version < self.oldest:
                raise errors.expired(f"too old resource version: {version} ({self.oldest})")
            found: list[Change] = []
            for change in reversed(self.history):
                if change.version <= version:
                    break
                if change.key == key:
                    found.append(change)
        return reversed(found)

    # Methods for events.

    def event(
        self,
        kind: Kind,
        obj: Object,
        reason: str,
        message: str,
        type_: str = "Normal",
        *,
        component: str = "kubelet",
        field: str = "",
    ) -> None:
        """Record an event about an object; a repeated event increases the count of the first."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or "default"
        with self.lock:
            told = (metadata["uid"], reason, message)
            if self.mutate(EVENTS, namespace, self._told.get(told, ""), _counted) is not None:
                return
            name = f"{metadata['name']}.{uuid.uuid4().hex[:16]}"
            self._told[told] = name
            involved = {
                "kind": kind.kind,
                "namespace": namespace,
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": kind.api_version,
                "resourceVersion": metadata.get("resourceVersion", ""),
            }
            if field:
                involved["fieldPath"] = field
            self.create(
                EVENTS,
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": name, "namespace": namespace},
                    "involvedObject": involved,
                    "reason": reason,
                    "message": message,
                    "source": {"component": component},
                    "firstTimestamp": now(),
                    "lastTimestamp": now(),
                    "count": 1,
                    "type": type_,
                    "eventTime": None,
                    "reportingComponent": component,
                    "reportingInstance": "",
                },
            )


def _counted(event: Object) -> None:
    event["count"] += 1
    event["lastTimestamp"] = now()
