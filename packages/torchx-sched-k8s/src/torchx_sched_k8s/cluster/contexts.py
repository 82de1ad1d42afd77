"""Read the contexts of a kubeconfig, without the kubernetes library."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from torchx_kit.names.limits import DNS_LABEL

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class Contexts(NamedTuple):
    """The contexts of a kubeconfig.

    Attributes:
        current: Name of the current context; empty if there is none.
        namespaces: Maps the name of each context to its namespace; empty if the context has none.
    """

    current: str
    namespaces: dict[str, str]


def read(where: str) -> Contexts:
    """Read the contexts of a kubeconfig. A file that cannot be read counts as empty.

    The library cannot be used here: without a current context, it returns no contexts.

    Args:
        where: The path of the kubeconfig, or several paths, as in ``KUBECONFIG``.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    current = ""
    namespaces: dict[str, str] = {}
    for path in paths(where):
        with contextlib.suppress(Exception), open(path, encoding="utf-8") as file:
            data = yaml.load(file, Loader=loader)  # noqa: S506 - a safe loader
            current = current or str(data.get("current-context") or "")
            for one in data.get("contexts") or ():
                namespace = (one.get("context") or {}).get("namespace") or ""
                namespaces.setdefault(str(one["name"]), str(namespace))
    return Contexts(current, namespaces)


def context_in(cfg: Mapping[str, Any]) -> str | None:
    """Return the option ``context`` among a scheduler's options."""
    context = cfg.get("context")
    return None if context is None else str(context)


def default_namespace(context: str | None) -> str:
    """Return the namespace of jobs without the option ``namespace``.

    This is the namespace of the context. In a pod that uses its own cluster, it is the namespace of
    the pod. If there is none, it is ``default``, as for kubectl.

    Args:
        context: Context of the kubeconfig; None for the current one.
    """
    where = kubeconfig(context)
    found = ""
    if where is not None:
        contexts = read(where)
        found = contexts.namespaces.get(context or contexts.current, "")
    else:
        path = f"{_SERVICE_ACCOUNT}/namespace"
        with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            found = file.read().strip()
    return found if DNS_LABEL.accepts(found) else "default"


def paths(where: str) -> list[str]:
    """Return the paths in a value of ``KUBECONFIG``."""
    return [os.path.expanduser(path) for path in where.split(os.pathsep) if path]


def kubeconfig(context: str | None) -> str | None:
    """Return the path of the kubeconfig, or None to use the cluster that this process runs in."""
    given = os.environ.get("KUBECONFIG")
    if given:
        return given
    return None if is_in_cluster() and not context else os.path.expanduser("~/.kube/config")


def is_in_cluster() -> bool:
    """Return whether this process runs in a cluster and may use it."""
    # a pod without a service account token cannot use its own cluster
    token = os.path.exists(f"{_SERVICE_ACCOUNT}/token")
    return token and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
