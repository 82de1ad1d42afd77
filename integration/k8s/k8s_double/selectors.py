"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from k8s_double.errors import bad_request

Test = Callable[[dict[str, Any]], bool]

_SET = re.compile(r"^([^\s!=,()]+)\s+(in|notin)\s+\(([^()]*)\)$")
_EQUAL = re.compile(r"^([^\s!=,()]+)\s*(==|!=|=)\s*([^\s!=,()]*)$")
_FIELDS = {
    "pods": {
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
    },
    "events": {
        "metadata.name",
        "metadata.namespace",
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    },
    "jobs.batch": {"metadata.name", "metadata.namespace", "status.successful"},
    "secrets": {"metadata.name", "metadata.namespace", "type"},
}
_PLAIN = {"metadata.name", "metadata.namespace"}


def label_selector(text: str) -> Test:
    """Return a function that tests whether a label selector matches an object.

    Raises:
        ApiError: 400 for an invalid selector.
    """
    parts = re.split(r",(?![^(]*\))", text) if text.strip() else []
    tests = [_label_test(part.strip()) for part in parts]

    def check(obj: dict[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return check


def _label_test(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(part):
        key, how, values = found[1], found[2], {v.strip() for v in found[3].split(",")}
        if how == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUAL.match(part):
        key, how, value = found.groups()
        if how == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if re.fullmatch(r"!\s*[^\s!=,()]+", part):
        name = part[1:].strip()
        return lambda labels: name not in labels
    if re.fullmatch(r"[^\s!=,()]+", part):
        return lambda labels: part in labels
    raise bad_request(
        f"unable to parse requirement: found '{part}', expected: in, notin, =, ==, !="
    )


def field_selector(text: str, key: str) -> Test:
    """Return a function that tests whether a field selector matches an object.

    Raises:
        ApiError: 400 for an invalid selector, or for a field that the kind's selectors do not know.
    """
    known = _FIELDS.get(key, _PLAIN)
    tests: list[tuple[str, bool, str]] = []
    for part in text.split(",") if text else []:
        found = re.match(r"^([^!=]+)(==|!=|=)(.*)$", part)
        if found is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        if found[1] not in known:
            raise bad_request(f'field label not supported: "{found[1]}"')
        tests.append((found[1], found[2] != "!=", found[3]))

    def check(obj: dict[str, Any]) -> bool:
        return all((_field(obj, path) == value) is equal for path, equal, value in tests)

    return check


def _field(obj: dict[str, Any], path: str) -> str:
    if path == "source":
        return str((obj.get("source") or {}).get("component", ""))
    if path == "status.successful":
        return str((obj.get("status") or {}).get("succeeded", 0))
    found: Any = obj
    for name in path.split("."):
        found = (found or {}).get(name)
    return "" if found is None else str(found)


def matches(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Return whether a ``matchLabels``/``matchExpressions`` selector matches these labels."""
    selector = selector or {}
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or []:
        key, values = rule["key"], rule.get("values") or []
        held = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not held[rule["operator"]]:
            return False
    return True
