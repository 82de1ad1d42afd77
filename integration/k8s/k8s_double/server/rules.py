"""The API server's checks beyond the schemas, with the messages of its 422 responses."""

from __future__ import annotations

import re
from typing import Any

from k8s_double import quantities
from k8s_double.errors import (
    Cause,
    duplicate,
    invalid_value,
    missing,
    not_allowed,
    required,
    too_long,
    unsupported_value,
)
from k8s_double.kinds import ROLES, Kind

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")

_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for"
    " validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    " validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_SERVICE_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    " regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_FIELD_PATHS = {
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
}
_FIELD_KEYED = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
_ANNOTATIONS_LIMIT = 262144
_DATA_LIMIT = 1024 * 1024
_KEY_WORDS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',"
    "  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_COUNTS_OF_JOB = (
    "parallelism",
    "completions",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def _longer(field: str, value: str, limit: int) -> list[Cause]:
    if len(value) <= limit:
        return []
    return [invalid_value(field, value, f"must be no more than {limit} characters")]


def dns_label(field: str, value: str) -> list[Cause]:
    found = _longer(field, value, 63)
    if not _LABEL.fullmatch(value):
        found.append(invalid_value(field, value, _LABEL_WORDS))
    return found


def dns_subdomain(field: str, value: str) -> list[Cause]:
    found = _longer(field, value, 253)
    if not _SUBDOMAIN.fullmatch(value):
        found.append(invalid_value(field, value, _SUBDOMAIN_WORDS))
    return found


def qualified_name(field: str, key: str) -> list[Cause]:
    prefix, slash, name = key.rpartition("/")
    found: list[Cause] = []
    if slash and (not _SUBDOMAIN.fullmatch(prefix) or len(prefix) > 253):
        found.append(invalid_value(field, key, f"prefix part {_SUBDOMAIN_WORDS}"))
    if not name:
        found.append(invalid_value(field, key, "name part must be non-empty"))
    elif len(name) > 63:
        found.append(invalid_value(field, key, "name part must be no more than 63 characters"))
    if not _QUALIFIED.fullmatch(name):
        found.append(invalid_value(field, key, _NAME_WORDS))
    return found


def labels(field: str, given: dict[str, str] | None) -> list[Cause]:
    found: list[Cause] = []
    for key, value in (given or {}).items():
        found += qualified_name(field, key)
        found += _longer(field, value, 63)
        if value and not _QUALIFIED.fullmatch(value):
            found.append(invalid_value(field, value, _VALUE_WORDS))
    return found


def metadata(kind: Kind, obj: dict[str, Any]) -> list[Cause]:
    """Return the problems of an object's names, labels, annotations and owners."""
    given = obj["metadata"]
    name = given.get("name", "")
    found: list[Cause] = []
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif kind.key == "services":
        found += _longer("metadata.name", name, 63)
        if not _SERVICE.fullmatch(name):
            found.append(invalid_value("metadata.name", name, _SERVICE_WORDS))
    elif kind.key == "namespaces":
        found += dns_label("metadata.name", name)
    else:
        found += dns_subdomain("metadata.name", name)
    found += labels("metadata.labels", given.get("labels"))
    total = 0
    for key, value in (given.get("annotations") or {}).items():
        found += qualified_name("metadata.annotations", key.lower())
        total += len(key.encode()) + len(value.encode("utf-8", "surrogatepass"))
    if total > _ANNOTATIONS_LIMIT:
        found.append(too_long("metadata.annotations", _ANNOTATIONS_LIMIT))
    controllers = 0
    for i, owner in enumerate(given.get("ownerReferences") or []):
        at = f"metadata.ownerReferences[{i}]"
        found += [
            required(f"{at}.{k}") for k in ("apiVersion", "kind", "name", "uid") if not owner.get(k)
        ]
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        found.append(
            invalid_value(
                "metadata.ownerReferences",
                "...",
                "Only one reference can have Controller set to true",
            )
        )
    return found


def pod(spec: dict[str, Any], at: str = "spec") -> list[Cause]:
    """Return the problems of a pod's spec, in which the defaults were already set."""
    found: list[Cause] = []
    volumes: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or []):
        field, name = f"{at}.volumes[{i}]", volume.get("name", "")
        found += dns_label(f"{field}.name", name) if name else [required(f"{field}.name")]
        if name in volumes:
            found.append(duplicate(f"{field}.name", name))
        volumes.add(name)
        sources = [key for key in volume if key != "name"]
        if len(sources) > 1:
            found.append(
                not_allowed(f"{field}.{sources[1]}", "may not specify more than 1 volume type")
            )
        empty = volume.get("emptyDir") or {}
        if "sizeLimit" in empty:
            found += _quantity(f"{field}.emptyDir.sizeLimit", empty["sizeLimit"])
        if "hostPath" in volume and not volume["hostPath"].get("path"):
            found.append(required(f"{field}.hostPath.path"))
    containers = spec.get("containers") or []
    if not containers:
        found.append(required(f"{at}.containers"))
    names: set[str] = set()
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or []):
            field, name = f"{at}.{part}[{i}]", container.get("name", "")
            found += dns_label(f"{field}.name", name) if name else [required(f"{field}.name")]
            if name in names:
                found.append(duplicate(f"{field}.name", name))
            names.add(name)
            found += _container(container, field, volumes)
    policies = ["Always", "OnFailure", "Never"]
    if spec.get("restartPolicy") not in policies:
        found.append(unsupported_value(f"{at}.restartPolicy", spec.get("restartPolicy"), policies))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            found += dns_label(f"{at}.{key}", spec[key])
    found += labels(f"{at}.nodeSelector", spec.get("nodeSelector"))
    if spec.get("serviceAccountName"):
        found += dns_subdomain(f"{at}.serviceAccountName", spec["serviceAccountName"])
    if spec.get("priorityClassName"):
        found += dns_subdomain(f"{at}.priorityClassName", spec["priorityClassName"])
    for i, secret in enumerate(spec.get("imagePullSecrets") or []):
        if not secret.get("name"):
            found.append(required(f"{at}.imagePullSecrets[{i}].name"))
    for i, toleration in enumerate(spec.get("tolerations") or []):
        found += _toleration(toleration, f"{at}.tolerations[{i}]")
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if grace < 0:
        found.append(
            invalid_value(
                f"{at}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"
            )
        )
    return found


def _toleration(given: dict[str, Any], at: str) -> list[Cause]:
    found: list[Cause] = []
    operator = given.get("operator", "Equal")
    if operator not in ("Equal", "Exists"):
        found.append(unsupported_value(f"{at}.operator", operator, ["Equal", "Exists"]))
    if operator == "Exists" and given.get("value"):
        found.append(
            invalid_value(
                f"{at}.operator", given, "value must be empty when `operator` is 'Exists'"
            )
        )
    if not given.get("key") and operator != "Exists":
        found.append(
            invalid_value(
                f"{at}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all'
                ' keys"',
            )
        )
    effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
    if given.get("effect") and given["effect"] not in effects:
        found.append(unsupported_value(f"{at}.effect", given["effect"], effects))
    return found


def _quantity(field: str, value: object) -> list[Cause]:
    try:
        if quantities.parsed(value) < 0:
            return [invalid_value(field, str(value), "must be greater than or equal to 0")]
    except ValueError as e:
        return [invalid_value(field, str(value), str(e))]
    return []


def _container(container: dict[str, Any], at: str, volumes: set[str]) -> list[Cause]:
    found: list[Cause] = []
    image = container.get("image", "")
    if not image:
        found.append(required(f"{at}.image"))
    elif image != image.strip():
        found.append(
            invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace")
        )
    policies = ["Always", "IfNotPresent", "Never"]
    if container.get("imagePullPolicy") not in policies:
        policy = container.get("imagePullPolicy")
        found.append(unsupported_value(f"{at}.imagePullPolicy", policy, policies))
    for i, variable in enumerate(container.get("env") or []):
        found += _variable(variable, f"{at}.env[{i}]")
    ports: set[str] = set()
    for i, port in enumerate(container.get("ports") or []):
        field, name = f"{at}.ports[{i}]", port.get("name", "")
        number = port.get("containerPort", 0)
        if not 1 <= number <= 65535:
            found.append(
                invalid_value(
                    f"{field}.containerPort", number, "must be between 1 and 65535, inclusive"
                )
            )
        if name:
            found += _port_name(f"{field}.name", name)
            if name in ports:
                found.append(duplicate(f"{field}.name", name))
            ports.add(name)
    paths: set[str] = set()
    for i, mount in enumerate(container.get("volumeMounts") or []):
        field, name = f"{at}.volumeMounts[{i}]", mount.get("name", "")
        path = mount.get("mountPath", "")
        if not name:
            found.append(required(f"{field}.name"))
        elif name not in volumes:
            found.append(missing(f"{field}.name", name))
        if not path:
            found.append(required(f"{field}.mountPath"))
        elif path in paths:
            found.append(invalid_value(f"{field}.mountPath", path, "must be unique"))
        elif ":" in path:
            found.append(invalid_value(f"{field}.mountPath", path, "must not contain ':'"))
        paths.add(path)
    found += _resources(container.get("resources") or {}, f"{at}.resources")
    return found


def _port_name(field: str, name: str) -> list[Cause]:
    found: list[Cause] = []
    if len(name) > 15:
        found.append(invalid_value(field, name, "must be no more than 15 characters"))
    if not _PORT_NAME.fullmatch(name):
        found.append(
            invalid_value(
                field,
                name,
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            )
        )
    if not re.search(r"[a-z]", name):
        found.append(invalid_value(field, name, "must contain at least one letter (a-z)"))
    if "--" in name:
        found.append(invalid_value(field, name, "must not contain consecutive hyphens"))
    return found


def _variable(variable: dict[str, Any], at: str) -> list[Cause]:
    found: list[Cause] = []
    name = variable.get("name", "")
    if not name:
        found.append(required(f"{at}.name"))
    elif "=" in name or any(not 32 <= ord(c) <= 126 for c in name):
        found.append(
            invalid_value(
                f"{at}.name",
                name,
                "a valid environment variable name must consist only of printable ASCII characters"
                " other than '='",
            )
        )
    source = variable.get("valueFrom")
    if source is None:
        return found
    if variable.get("value"):
        found.append(
            invalid_value(f"{at}.valueFrom", "", "may not be specified when `value` is not empty")
        )
    if len(source) != 1:
        words = (
            "may not have more than one field specified at a time"
            if source
            else (
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or"
                " `secretKeyRef`"
            )
        )
        found.append(invalid_value(f"{at}.valueFrom", "", words))
    reference = source.get("fieldRef")
    if reference is not None:
        path = reference.get("fieldPath", "")
        field = f"{at}.valueFrom.fieldRef.fieldPath"
        if not path:
            found.append(required(field))
        elif path not in _FIELD_PATHS and not _FIELD_KEYED.fullmatch(path):
            if re.fullmatch(r"(metadata|spec|status)(\.\w+)+(\[.*\])?", path):
                found.append(unsupported_value(field, path, sorted(_FIELD_PATHS)))
            else:
                found.append(
                    invalid_value(
                        field,
                        path,
                        f"error converting fieldPath: field label not supported: {path}",
                    )
                )
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            key = source[kind].get("key", "")
            if not key:
                found.append(required(f"{at}.valueFrom.{kind}.key"))
            elif not _KEY.fullmatch(key):
                found.append(
                    invalid_value(
                        f"{at}.valueFrom.{kind}.key",
                        key,
                        "a valid config key must consist of alphanumeric characters, '-', '_' or"
                        " '.'",
                    )
                )
    return found


def _resources(given: dict[str, Any], at: str) -> list[Cause]:
    found: list[Cause] = []
    parsed: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for part, amounts in parsed.items():
        for name, amount in (given.get(part) or {}).items():
            field = f"{at}.{part}[{name}]"
            wrong = _quantity(field, amount)
            found += wrong
            if not wrong:
                amounts[name] = quantities.parsed(amount)
            if "/" not in name:
                known = name in ("cpu", "memory", "ephemeral-storage") or name.startswith(
                    "hugepages-"
                )
                if not known:
                    found.append(
                        invalid_value(
                            field, name, "must be a standard resource type or fully qualified"
                        )
                    )
                    found.append(
                        invalid_value(field, name, "must be a standard resource for containers")
                    )
            else:
                found += qualified_name(field, name)
                if not wrong and amounts[name] != amounts[name].to_integral_value():
                    found.append(invalid_value(field, amount, "must be an integer"))
    for name, asked in parsed["requests"].items():
        limit = parsed["limits"].get(name)
        shown = str(given["requests"][name])
        if "/" in name and limit is None:
            found.append(
                required(f"{at}.limits", "Limit must be set for non overcommitable resources")
            )
        elif limit is not None and "/" in name and limit != asked:
            found.append(
                invalid_value(
                    f"{at}.requests",
                    shown,
                    f"must be equal to {name} limit of {given['limits'][name]}",
                )
            )
        elif limit is not None and asked > limit:
            found.append(
                invalid_value(
                    f"{at}.requests",
                    shown,
                    f"must be less than or equal to {name} limit of {given['limits'][name]}",
                )
            )
    return found


def job(obj: dict[str, Any], at: str = "spec") -> list[Cause]:
    """Return the problems of a Job, in which the defaults were already set."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    found: list[Cause] = []
    template = spec["template"]
    indexed = spec["completionMode"] == "Indexed"
    found += [
        invalid_value(f"{at}.{field}", spec[field], "must be greater than or equal to 0")
        for field in _COUNTS_OF_JOB
        if (spec.get(field) or 0) < 0
    ]
    modes = ["NonIndexed", "Indexed"]
    if spec["completionMode"] not in modes:
        found.append(unsupported_value(f"{at}.completionMode", spec["completionMode"], modes))
    if indexed:
        if spec.get("completions") is None:
            found.append(required(f"{at}.completions", "when completion mode is Indexed"))
        elif spec["completions"] > 0:
            last = f"{name}-{spec['completions'] - 1}"
            if dns_label("", last) and at == "spec":
                found.append(
                    invalid_value(
                        "metadata.name",
                        name,
                        f"will not able to create pod with invalid DNS label: {last}",
                    )
                )
        if spec["parallelism"] > 100_000:
            found.append(
                invalid_value(
                    f"{at}.parallelism",
                    spec["parallelism"],
                    "must be less than or equal to 100000 when completion mode is Indexed",
                )
            )
    elif spec.get("backoffLimitPerIndex") is not None:
        found.append(
            invalid_value(
                f"{at}.backoffLimitPerIndex",
                spec["backoffLimitPerIndex"],
                "requires indexed completion mode",
            )
        )
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        found.append(required(f"{at}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if len(name) > 63 and at == "spec":
        found += labels(f"{at}.template.labels", {"job-name": name})
    found += labels(f"{at}.template.labels", (template.get("metadata") or {}).get("labels"))
    found += pod(template["spec"], f"{at}.template.spec")
    restart = template["spec"].get("restartPolicy")
    if restart == "Always":
        found.append(
            unsupported_value(f"{at}.template.spec.restartPolicy", restart, ["OnFailure", "Never"])
        )
    if spec.get("successPolicy") is not None and not indexed:
        found.append(invalid_value(f"{at}.successPolicy", "", "requires indexed completion mode"))
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        if restart != "Never":
            found.append(
                invalid_value(
                    f"{at}.template.spec.restartPolicy",
                    restart,
                    'only "Never" is supported when podFailurePolicy is specified',
                )
            )
        if spec["podReplacementPolicy"] != "Failed":
            found.append(
                unsupported_value(
                    f"{at}.podReplacementPolicy", spec["podReplacementPolicy"], ["Failed"]
                )
            )
        found += _failure_policy(policy, spec, f"{at}.podFailurePolicy")
    return found


def _failure_policy(policy: dict[str, Any], spec: dict[str, Any], at: str) -> list[Cause]:
    found: list[Cause] = []
    rules = policy.get("rules") or []
    if len(rules) > 20:
        found.append((f"{at}.rules", "Too many: must have at most 20 items", "FieldValueTooMany"))
    names = {
        c.get("name")
        for part in ("initContainers", "containers")
        for c in spec["template"]["spec"].get(part) or []
    }
    actions = ["Count", "FailIndex", "FailJob", "Ignore"]
    for i, rule in enumerate(rules):
        field = f"{at}.rules[{i}]"
        if rule.get("action") not in actions:
            found.append(unsupported_value(f"{field}.action", rule.get("action"), actions))
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            found.append(
                invalid_value(
                    f"{field}.action", "FailIndex", "requires the backoffLimitPerIndex to be set"
                )
            )
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if bool(codes) == bool(conditions):
            words = (
                "specifying both OnExitCodes and OnPodConditions is not supported"
                if codes
                else ("specifying one of OnExitCodes and OnPodConditions is required")
            )
            found.append(invalid_value(field, "", words))
        if codes:
            operators = ["In", "NotIn"]
            if codes.get("operator") not in operators:
                found.append(
                    unsupported_value(
                        f"{field}.onExitCodes.operator", codes.get("operator"), operators
                    )
                )
            values = codes.get("values") or []
            if not values:
                found.append(
                    invalid_value(
                        f"{field}.onExitCodes.values", "", "at least one value is required"
                    )
                )
            if values != sorted(values):
                found.append(
                    invalid_value(f"{field}.onExitCodes.values", values, "must be ordered")
                )
            if len(set(values)) != len(values):
                found.append(duplicate(f"{field}.onExitCodes.values", values))
            if codes.get("operator") == "In" and 0 in values:
                found.append(
                    invalid_value(
                        f"{field}.onExitCodes.values", 0, "must not be 0 for the In operator"
                    )
                )
            if codes.get("containerName") is not None and codes["containerName"] not in names:
                found.append(
                    invalid_value(
                        f"{field}.onExitCodes.containerName",
                        codes["containerName"],
                        "must be one of the container or initContainer names in the pod template",
                    )
                )
    return found


def service(obj: dict[str, Any]) -> list[Cause]:
    """Return the problems of a Service, in which the defaults were already set."""
    spec = obj["spec"]
    found: list[Cause] = []
    ports = spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    if not ports and not headless and spec["type"] != "ExternalName":
        found.append(required("spec.ports"))
    names: set[str] = set()
    for i, port in enumerate(ports):
        field, name = f"spec.ports[{i}]", port.get("name", "")
        if len(ports) > 1 and not name:
            found.append(required(f"{field}.name"))
        if name:
            found += dns_label(f"{field}.name", name)
            if name in names:
                found.append(duplicate(f"{field}.name", name))
            names.add(name)
        if not 1 <= (port.get("port") or 0) <= 65535:
            number = port.get("port") or 0
            found.append(
                invalid_value(f"{field}.port", number, "must be between 1 and 65535, inclusive")
            )
    found += labels("spec.selector", spec.get("selector"))
    return found


def role(obj: dict[str, Any]) -> list[Cause]:
    """Return the problems of a role's rules."""
    words = {
        "verbs": "verbs must contain at least one value",
        "apiGroups": "resource rules must supply at least one api group",
        "resources": "resource rules must supply at least one resource",
    }
    return [
        required(f"rules[{i}].{key}", text)
        for i, rule in enumerate(obj.get("rules") or [])
        for key, text in words.items()
        if not rule.get(key)
    ]


def config_map(obj: dict[str, Any]) -> list[Cause]:
    """Return the problems of a config map's keys and size."""
    data = obj.get("data") or {}
    found = [
        invalid_value(f"data[{key}]", key, _KEY_WORDS) for key in data if not _KEY.fullmatch(key)
    ]
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in data.values()) > _DATA_LIMIT:
        found.append(too_long("", _DATA_LIMIT))
    return found


def check(kind: Kind, obj: dict[str, Any]) -> list[Cause]:
    """Return the problems of an object, in which the defaults were already set."""
    found = metadata(kind, obj)
    if kind.key == "pods":
        found += pod(obj["spec"])
    elif kind.key == "jobs.batch":
        found += job(obj)
    elif kind.key == "services":
        found += service(obj)
    elif kind is ROLES:
        found += role(obj)
    elif kind.key == "configmaps":
        found += config_map(obj)
    elif kind.key == "jobs.batch.volcano.sh":
        tasks: set[str] = set()
        for i, task in enumerate(obj["spec"].get("tasks") or []):
            at = f"spec.tasks[{i}]"
            found += dns_label(f"{at}.name", task["name"])
            if task["name"] in tasks:
                found.append(duplicate(f"{at}.name", task["name"]))
            tasks.add(task["name"])
            found += pod(task["template"]["spec"], f"{at}.template.spec")
            found += labels(
                f"{at}.template.labels", (task["template"].get("metadata") or {}).get("labels")
            )
    elif kind.key == "jobsets.jobset.x-k8s.io":
        for i, part in enumerate(obj["spec"].get("replicatedJobs") or []):
            at = f"spec.replicatedJobs[{i}]"
            found += dns_label(f"{at}.name", part["name"])
            inner = {"metadata": {"name": ""}, "spec": part["template"]["spec"]}
            found += job(inner, f"{at}.template.spec")
            longest = f"{obj['metadata'].get('name')}-{part['name']}-{part['replicas'] - 1}"
            longest += f"-{(part['template']['spec'].get('completions') or 1) - 1}"
            if len(longest) > 63:
                found.append(
                    invalid_value(
                        at,
                        longest,
                        "JobSet name is too long, job names generated for this JobSet"
                        " will exceed 63 characters",
                    )
                )
    return found


# The fields of the spec of a Job and of a pod that can be changed.
_MUTABLE_JOB = {"suspend", "parallelism", "activeDeadlineSeconds", "backoffLimit",
                "ttlSecondsAfterFinished", "maxFailedIndexes"}  # fmt: skip
_MUTABLE_POD = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"}


def check_change(kind: Kind, before: dict[str, Any], after: dict[str, Any]) -> list[Cause]:
    """Return the problems of a change: one for each immutable field of a Job, or one for a pod."""
    found: list[Cause] = []
    if kind.key == "jobs.batch":
        old, new = before["spec"], after["spec"]
        started = bool((before.get("status") or {}).get("startTime"))
        for key in sorted({*old, *new} - _MUTABLE_JOB):
            if old.get(key) == new.get(key):
                continue
            if (
                key == "completions"
                and new.get("completionMode") == "Indexed"
                and (new.get("completions") == new.get("parallelism"))
            ):
                continue  # the API allows this change, for elastic Jobs
            if (
                key == "template"
                and old.get("suspend")
                and not started
                and (_without_scheduling(old[key]) == _without_scheduling(new[key]))
            ):
                continue  # only scheduling fields have changed, as Kueue changes them
            found.append(invalid_value(f"spec.{key}", "...", "field is immutable"))
    elif kind.key == "pods":
        old, new = before["spec"], after["spec"]
        if any(old.get(key) != new.get(key) for key in {*old, *new} - _MUTABLE_POD):
            found.append(
                not_allowed(
                    "spec",
                    "pod updates may not change fields other than `spec.containers[*].image`,"
                    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
                    " (only additions to existing tolerations),"
                    "`spec.terminationGracePeriodSeconds`",
                )
            )
    return found


def _without_scheduling(template: dict[str, Any]) -> dict[str, Any]:
    free = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    return {key: value for key, value in template["spec"].items() if key not in free}
