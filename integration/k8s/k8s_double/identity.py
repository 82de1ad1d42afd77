"""Identities of the server and its users: a certificate authority, tokens and kubeconfigs."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path
from typing import Any

import trustme
import yaml

USER = "double-user"
CONTEXT = "double"
#: Prefix of the names of pods' users.
ACCOUNT = "system:serviceaccount:"
#: Variable with the folder of a pod's token. In a cluster the folder is a mount. Pods of the double
#: have no mounts, so each pod gets a folder of its own.
ACCOUNT_VARIABLE = "TORCHX_SERVICE_ACCOUNT_DIR"


def server_context(folder: Path) -> ssl.SSLContext:
    """Return a TLS context with a certificate for 127.0.0.1; write its authority to ``ca.pem``."""
    authority = trustme.CA(organization_name="k8s double")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


def new_token() -> str:
    return secrets.token_urlsafe(32)


def write_account(folder: Path, token: str, namespace: str, ca: Path) -> None:
    """Write the files of a pod's service account; an existing token is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("ca.crt", ca.read_text()), ("namespace", namespace), ("token", token)):
        new = folder / f"{name}.new"
        new.touch(0o600)
        new.write_text(data)
        new.replace(folder / name)


def write_kubeconfig(
    path: Path,
    url: str,
    token: str,
    *,
    ca: Path | None,
    namespace: str = "default",
    style: str = "token",
    insecure: bool = False,
) -> Path:
    """Write a kubeconfig with one context, ``double``.

    Args:
        path: Path of the file.
        url: URL of the server.
        token: Token of the user.
        ca: Certificate of the server's authority; None without TLS.
        namespace: Namespace of the context.
        style: Where the token is: ``token`` in the file, ``token-file`` in another file, ``exec``
            from a program, ``none`` for no token.
        insecure: Whether clients do not check the server's certificate.
    """
    cluster: dict[str, Any] = {"server": url}
    if insecure:
        cluster["insecure-skip-tls-verify"] = True
    elif ca is not None:
        cluster["certificate-authority"] = str(ca)
    beside = path.with_name(path.name + ".token")
    user: dict[str, Any] = {}
    if style in ("token-file", "exec"):
        beside.write_text(token)
    if style == "token":
        user["token"] = token
    elif style == "token-file":
        user["tokenFile"] = str(beside)
    elif style == "exec":
        script = (
            'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
            '"status":{"token":"%s"}}\' "$(cat "$0")"'
        )
        user["exec"] = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script, str(beside)],
            "interactiveMode": "Never",
        }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "double", "cluster": cluster}],
        "users": [{"name": USER, "user": user}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": "double", "user": USER, "namespace": namespace},
            }
        ],
        "current-context": CONTEXT,
    }
    new = path.with_name(path.name + ".new")
    new.write_text(yaml.safe_dump(config))
    new.replace(path)
    return path
