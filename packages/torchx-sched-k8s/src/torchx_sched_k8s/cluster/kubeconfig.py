"""Find the cluster and the credentials in a kubeconfig or in the configuration of a pod.

A dry run reads the contexts of a kubeconfig. The kubernetes library, which takes long to import, is
needed only for a connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from torchx_kit.names.limits import DNS_LABEL
from torchx_sched_k8s.cluster.errors import NoClusterError
from torchx_specs.errors import RequestError, nearest, one_line

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_POOL = 1024


def read(where: str) -> tuple[str, dict[str, str]]:
    """Return the current context of a kubeconfig, and the namespace of each context.

    Both are empty if they are missing. A file that cannot be read counts as empty. The library
    cannot be used here: without a current context, it returns no contexts.

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
    return current, namespaces


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
        current, namespaces = read(where)
        found = namespaces.get(context or current, "")
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


def connect(context: str | None = None) -> Any:
    """Return a client of the kubernetes library for the cluster of the environment.

    The library's functions load the configuration. ``KUBECONFIG`` comes first, then the cluster
    that this process runs in, then ``~/.kube/config``. A configuration that the program has set
    (``Configuration.set_default``) is used instead of all of them.

    Args:
        context: Context of the kubeconfig; by default the current one. If it is set, only the
            kubeconfig is used.

    Raises:
        NoClusterError: There is no configuration, or it cannot be used, for example because its
            credential program fails.
        RequestError: The kubeconfig has no such context.
    """
    from kubernetes.client import ApiClient, Configuration

    preset: Any = getattr(Configuration, "_default", None)
    config: Any = Configuration.get_default_copy()
    config.connection_pool_maxsize = _POOL
    config.retries = False
    if preset is None or context is not None:
        _load(config, context)
    if not config.verify_ssl:
        _accept_unverified(str(config.host))
    return ApiClient(configuration=config)


def _load(config: Any, context: str | None) -> None:
    from kubernetes import config as library
    from kubernetes.config.config_exception import ConfigException

    loaders: Any = library  # the library has no types
    where = kubeconfig(context)
    if where is None:
        try:
            loaders.load_incluster_config(client_configuration=config)
        except Exception as e:
            raise NoClusterError(f"in-cluster configuration: {one_line(e)}") from e
        return
    source = f"kubeconfig {where}"
    with _no_credentials(source):
        try:
            loaders.load_kube_config(
                config_file=where, context=context, client_configuration=config
            )
        except ConfigException as e:
            _check_there(where)
            _check_context(where, context)
            raise NoClusterError(f"{source}: {one_line(e)}") from e
        except Exception as e:  # invalid YAML or certificates, a failed credential program ...
            raise NoClusterError(f"{source}: {type(e).__name__}: {one_line(e)}") from e


def credentials_name(context: str | None) -> str:
    """Describe the credentials that :func:`connect` uses, for error messages."""
    where = kubeconfig(context)
    if where is None:
        return "this pod's service account"
    return f"context '{context or read(where)[0]}' of {where}"


def _check_there(where: str) -> None:
    if any(map(os.path.exists, paths(where))):
        return
    given = os.environ.get("KUBECONFIG")
    problem = f"KUBECONFIG names {where}, which does not exist" if given else f"there is no {where}"
    raise NoClusterError(
        f"no cluster is configured: {problem};"
        " set KUBECONFIG to the path of a kubeconfig, or run inside a cluster"
    )


def _check_context(where: str, context: str | None) -> None:
    current, known = read(where)
    have = f" contexts: {', '.join(known)}" if known else " it has no contexts"
    if context is not None:
        if context not in known:
            hint = nearest(context, known)
            raise RequestError(f"option context: {where} has no context '{context}';{hint}{have}")
    elif known and current not in known:
        problem = f"its current context '{current}' does not exist"
        what = problem if current else "it has no current context"
        raise NoClusterError(
            f"kubeconfig {where}: {what}; set the option context, or run kubectl config"
            f" use-context;{have}"
        )


@contextlib.contextmanager
def _no_credentials(source: str) -> Iterator[None]:
    """Raise an error if the credential program fails; the library would only log the failure.

    Raises:
        NoClusterError: The credential program of the kubeconfig returned no credentials.
    """
    messages: list[str] = []
    thread = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        ours = record.module == "kube_config" and record.thread == thread
        if ours and record.levelno >= logging.ERROR:
            messages.append(record.getMessage())
        return not ours

    root = logging.getLogger()
    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)
    if messages:
        raise NoClusterError(f"{source}: cannot get credentials: {one_line('; '.join(messages))}")


def _accept_unverified(host: str) -> None:
    """Silence urllib3's warnings about a cluster whose kubeconfig disables TLS verification."""
    import urllib3.exceptions

    name = re.escape(f"Unverified HTTPS request is being made to host '{urlsplit(host).hostname}'")
    warnings.filterwarnings("ignore", name, urllib3.exceptions.InsecureRequestWarning)
