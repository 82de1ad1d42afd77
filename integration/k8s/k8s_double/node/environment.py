"""The variables of a container's process, and the files of its ConfigMap volumes."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from k8s_double.kinds import BY_KEY, SERVICES
from k8s_double.store import Object, Store

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_REFERENCE = re.compile(r"\$(\$|\([^)]*\)|.)", re.S)


class ConfigError(Exception):
    """An object that a container refers to is missing (reason ``CreateContainerConfigError``)."""


def expanded(text: str, variables: dict[str, str]) -> str:
    """Replace ``$(NAME)`` by the variable of that name, if there is one, and ``$$`` by ``$``."""

    def one(found: re.Match[str]) -> str:
        inner = found[1]
        if inner == "$":
            return "$"
        if len(inner) > 1:
            return variables.get(inner[1:-1], found[0])
        return found[0]

    return _REFERENCE.sub(one, text)


def variables(
    store: Store, pod: Object, container: dict[str, Any], server: tuple[str, int]
) -> dict[str, str]:
    """Return the variables of a container, without variables that its image sets.

    Args:
        store: Store of the secrets and config maps.
        pod: The container's pod.
        container: The container, as in the pod's spec.
        server: Host and port of the API server.

    Raises:
        ConfigError: A secret or config map is missing, or lacks the key.
    """
    namespace = pod["metadata"]["namespace"]
    services = _services(store, pod, server)
    found: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        for kind, what in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if kind in source:
                reference = source[kind]
                data = _data(store, what, namespace, reference["name"], reference.get("optional"))
                for key, value in (data or {}).items():
                    found[source.get("prefix", "") + key] = value
    for variable in container.get("env") or []:
        name, source = variable["name"], variable.get("valueFrom")
        if source is None:
            found[name] = expanded(variable.get("value", ""), {**services, **found})
        elif (value := _referred(store, pod, container, source)) is not None:
            found[name] = value
    return {**services, **found}


def write_config_maps(
    store: Store, pod: Object, container: dict[str, Any], folder: Path
) -> dict[str, str]:
    """Write the files of a container's ConfigMap volumes; return their folders by mount path.

    The double's processes have no mount namespace, so the caller replaces the mount paths in the
    command.

    Raises:
        ConfigError: A config map is missing.
    """
    sources = {one["name"]: one["configMap"] for one in pod["spec"].get("volumes") or []
               if "configMap" in one}  # fmt: skip
    found: dict[str, str] = {}
    for mount in container.get("volumeMounts") or []:
        source = sources.get(mount["name"])
        if source is None:
            continue
        data = _data(store, "configmaps", pod["metadata"]["namespace"], source["name"],
                     source.get("optional"))  # fmt: skip
        place = folder / mount["name"]
        place.mkdir(parents=True, exist_ok=True)
        for key, value in (data or {}).items():
            (place / key).write_text(value)
        found[mount["mountPath"]] = str(place)
    return found


def _services(store: Store, pod: Object, server: tuple[str, int]) -> dict[str, str]:
    found = {"KUBERNETES_SERVICE_HOST": server[0], "KUBERNETES_SERVICE_PORT": str(server[1])}
    if pod["spec"].get("enableServiceLinks", True):
        for service in store.all(SERVICES, pod["metadata"]["namespace"]):
            address, ports = service["spec"].get("clusterIP"), service["spec"].get("ports")
            if address and address != "None" and ports:
                name = service["metadata"]["name"].upper().replace("-", "_")
                found[f"{name}_SERVICE_HOST"] = address
                found[f"{name}_SERVICE_PORT"] = str(ports[0]["port"])
    return found


def _data(
    store: Store, what: str, namespace: str, name: str, optional: bool | None
) -> dict[str, str] | None:
    found = store.find(BY_KEY[what], namespace, name)
    if found is None:
        if optional:
            return None
        raise ConfigError(f'{what[:-1]} "{name}" not found')
    data = {k: str(v) for k, v in (found.get("data") or {}).items()}
    if what == "secrets":
        data = {k: base64.b64decode(v).decode("utf-8", "replace") for k, v in data.items()}
        data.update(found.get("stringData") or {})
    return data


def _referred(
    store: Store, pod: Object, container: dict[str, Any], source: dict[str, Any]
) -> str | None:
    namespace = pod["metadata"]["namespace"]
    for kind, what, title in (
        ("configMapKeyRef", "configmaps", "ConfigMap"),
        ("secretKeyRef", "secrets", "Secret"),
    ):
        if kind in source:
            reference = source[kind]
            optional = reference.get("optional")
            data = _data(store, what, namespace, reference.get("name", ""), optional)
            if data is None or reference["key"] not in data:
                if optional:
                    return None
                where = f"{namespace}/{reference.get('name', '')}"
                raise ConfigError(f"couldn't find key {reference['key']} in {title} {where}")
            return data[reference["key"]]
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        part, _, name = source["resourceFieldRef"]["resource"].partition(".")
        amounts = (container.get("resources") or {}).get(part) or {}
        return str(amounts.get(name, "0"))
    return ""


def field(pod: Object, path: str) -> str:
    """Return a field of a pod, as the downward API does."""
    found = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if found:
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    value: Any = pod
    for word in path.split("."):
        value = (value or {}).get(word)
    if isinstance(value, list):
        return ",".join(item["ip"] for item in value)
    return "" if value is None else str(value)
