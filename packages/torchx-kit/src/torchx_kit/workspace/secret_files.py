"""Recognize files that probably contain a secret, so that they do not travel unasked."""

from __future__ import annotations

from collections.abc import Sequence

from torchx_kit.workspace.ignore import TORCHX_IGNORE

#: Names of files with keys or passwords.
_NAMES = frozenset(
    {".env", ".netrc", "_netrc", ".pgpass", ".pypirc", ".git-credentials", ".htpasswd"}
    | {"id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"}
)
#: The ends of the names of files with private keys.
_SUFFIXES = frozenset({"key", "p12", "pfx", "ppk", "jks", "keystore", "kdbx"})
#: ``.env.example`` and the like are templates without values.
_TEMPLATES = frozenset({"example", "sample", "template", "dist", "defaults"})
#: A PEM file may hold a public certificate, so its content decides.
_PEM_MARK = b"PRIVATE KEY-----"
_PEM_BYTES = 64 << 10
#: How many files a warning names.
_NAMED = 5


def looks_secret(name: str, source: str = "") -> bool:
    """Return True if a file probably contains a secret.

    Args:
        name: The name of the file.
        source: The path of the file on this machine, for a look into a PEM file; empty for a file
            of another file system, whose PEM files count as secret.
    """
    suffix = name.rpartition(".")[2]
    if name in _NAMES:
        return True
    if suffix == name:
        return False
    if suffix == "pem":
        return not source or _has_private_key(source)
    return suffix in _SUFFIXES or (name.startswith(".env.") and suffix not in _TEMPLATES)


def warn_left_out(paths: Sequence[str]) -> None:
    """Warn of files that are not uploaded because they look like secrets.

    Args:
        paths: The paths of the files, relative to the root of the workspace.
    """
    if not paths:
        return
    import logging

    named = ", ".join(f"'{path}'" for path in paths[:_NAMED])
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    logging.getLogger(__name__).warning(
        "the workspace is uploaded without files that look like secrets: %s%s; to upload a file,"
        " add a line with ! and its path to %s, e.g. !%s",
        named,
        more,
        TORCHX_IGNORE,
        paths[0],
    )


def _has_private_key(source: str) -> bool:
    try:
        with open(source, "rb") as file:
            return _PEM_MARK in file.read(_PEM_BYTES)
    except OSError:
        return True
