"""Who the server is and who its users are: an own authority, tokens, kubeconfigs."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path
from typing import Any

import trustme
import yaml

USER = "double-user"
CONTEXT = "double"
#: What the names of pods' users begin with.
ACCOUNT = "system:serviceaccount:"
#: Names the folder with a pod's token, which in a cluster is a mount: the double's pods have the
#: files of this machine.
ACCOUNT_VARIABLE = "TORCHX_SERVICE_ACCOUNT_DIR"


def server_context(folder: Path) -> ssl.SSLContext:
    """Makes an authority and a certificate for 127.0.0.1; the authority's is FOLDER/ca.pem."""
    authority = trustme.CA(organization_name="k8s double")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


def new_token() -> str:
    return secrets.token_urlsafe(32)


def write_account(folder: Path, token: str, namespace: str, ca: Path) -> None:
    """Writes what a pod finds of its service account; a token that is there is replaced."""
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
    """Writes a kubeconfig with one context, ``double``.

    Args:
        path: of the file
        url: of the server
        token: of the user
        ca: of the server's authority, None without TLS
        namespace: of the context
        style: ``token`` has it in the file, ``token-file`` in a file beside it, ``exec`` has it
            given by a program, ``none`` has no token
        insecure: the certificate isn't checked
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
