"""Paths of the Kubernetes API."""

from __future__ import annotations

from urllib.parse import quote

BATCH = "/apis/batch/v1"
CORE = "/api/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def object_path(
    api: str, namespace: str, plural: str, name: str = "", subresource: str = ""
) -> str:
    """Return the path of all objects of a kind in a namespace, or of one object.

    Args:
        api: Path of the API group and version, such as :data:`BATCH`.
        namespace: Namespace of the objects.
        plural: Plural name of the kind, such as ``jobs``.
        name: Name of one object; empty for all objects.
        subresource: Part of that object, such as ``status`` or ``log``.
    """
    path = f"{api}/namespaces/{quote(namespace, safe='')}/{plural}"
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path
