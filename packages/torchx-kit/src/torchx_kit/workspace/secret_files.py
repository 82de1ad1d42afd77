"""Recognize files that probably contain a secret, so that they are not uploaded."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torchx_kit.workspace.ignore import TORCHX_IGNORE
from torchx_specs.redaction import is_secret

#: Names of files with keys or passwords.
_NAMES = frozenset(
    {".env", ".envrc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".htpasswd", ".vault-token"}
    | {".npmrc", ".pypirc", ".git-credentials", ".dockercfg", ".databrickscfg", ".boto", ".s3cfg"}
    | {".passwd-s3fs", ".terraformrc", "rclone.conf"}
    # People type passwords and tokens into these programs.
    | {".bash_history", ".zsh_history", ".history", ".python_history", ".mysql_history"}
    | {".psql_history", ".sqlite_history", ".node_repl_history", ".rediscli_history"}
    | {"credentials.json", "application_default_credentials.json", "kaggle.json", "kubeconfig"}
    | {"token", ".token", "token.txt", "token.json", "key.json"}
)
#: Names of files with keys or passwords in certain folders, by the name of the folder.
_NAMES_IN_FOLDERS = {
    ".aws": {"credentials", "config"},
    ".docker": {"config.json"},
    ".kube": {"config"},
    ".cargo": {"credentials", "credentials.toml"},
    ".gem": {"credentials"},
    ".m2": {"settings.xml", "settings-security.xml"},
    ".gradle": {"gradle.properties"},
    ".pip": {"pip.conf"},
    "pip": {"pip.conf", "pip.ini"},
    ".kaggle": {"access_token"},
    ".huggingface": {"token", "stored_tokens"},
    "huggingface": {"token", "stored_tokens"},
}
#: Folders in which every file is private, except public keys.
_FOLDERS = (
    *("/.ssh/", "/.gnupg/", "/.azure/", "/.aws/sso/", "/.aws/cli/"),
    *("/.config/gcloud/", "/.config/gh/", "/.config/containers/", "/.password-store/"),
    "/.torchx/secrets/",
)
#: How the names of JSON files with keys of Google's services begin.
_JSON_PREFIXES = ("service-account", "service_account", "client_secret")
#: How the names of private SSH keys begin.
_SSH_PREFIXES = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
#: The ends of the names of files with private keys.
_SUFFIXES = frozenset(
    {"p12", "pfx", "p8", "ppk", "jks", "keystore", "kdbx", "kubeconfig", "keytab", "tfstate"}
)
#: A file of data is private if its name is one of these, such as ``secrets.yaml``. The name of a
#: JSON file may also be secret as a whole, such as ``gcp-key.json``.
_DATA_NAMES = frozenset({"secret", "secrets", "credentials", "creds", "passwords"})
_DATA_SUFFIXES = frozenset({"yaml", "yml", "toml", "json", "ini", "txt"})
#: Suffixes of backup copies; the name without the suffix decides.
_BACKUPS = frozenset({"bak", "backup", "old", "orig", "save"})
#: ``.env.example`` and ``example.env`` are templates without values.
_TEMPLATES = frozenset({"example", "sample", "template", "dist", "defaults"})
#: A PEM file may hold a public certificate, so its content decides.
_PEM_SUFFIXES = frozenset({"pem", "key"})
_PRIVATE_MARK = b"PRIVATE KEY-----"
_PUBLIC_MARKS = (b"BEGIN CERTIFICATE-----", b"PUBLIC KEY-----", b"PUBLIC KEY BLOCK-----")
_PEM_BYTES = 64 << 10
#: How many files a warning names.
_NAMED = 5


def looks_secret(path: str, source: str = "") -> bool:
    """Return True if a file probably contains a secret.

    Args:
        path: The path of the file in the workspace. The names of the folders above the workspace
            may precede it, because a workspace may itself be a private folder such as ``.aws``.
        source: The path of the file on this machine, for checking the content of a PEM file. Empty
            for a file on another file system; there, every PEM file counts as secret.
    """
    folder, _, name = path.lower().rpartition("/")
    if name in _NAMES or (folder and _is_private_in(folder, name)):
        return True
    if name.endswith("~"):
        return looks_secret(path[:-1], source)
    suffix = name.rpartition(".")[2]
    if suffix in _BACKUPS and suffix != name and looks_secret(path[: -len(suffix) - 1], source):
        return True
    if suffix == name:
        return name.startswith(_SSH_PREFIXES)
    if suffix in _PEM_SUFFIXES:
        return not source or _has_private_key(source)
    stem = name[: -len(suffix) - 1]
    return (
        suffix in _SUFFIXES
        or (suffix == "json" and (name.startswith(_JSON_PREFIXES) or _is_key(stem)))
        or (suffix == "env" and stem not in _TEMPLATES)
        or (suffix in _DATA_SUFFIXES and stem in _DATA_NAMES)
        or (name.startswith(".env.") and suffix not in _TEMPLATES)
    )


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


def _is_key(name: str) -> bool:
    """Return True for names such as ``gcp-key``, but not for ``primary-key``."""
    return (name.endswith("key") and is_secret(name)) or "-adminsdk-" in name


def _is_private_in(folder: str, name: str) -> bool:
    if name in _NAMES_IN_FOLDERS.get(folder.rpartition("/")[2], ()):
        return True
    if "." not in folder:  # true for most folders, but for none of _FOLDERS
        return False
    path = f"/{folder}/"
    return any(private in path for private in _FOLDERS) and not name.endswith(".pub")


def _has_private_key(source: str) -> bool:
    try:
        # A FIFO with such a name must not block.
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            content = file.read(_PEM_BYTES)
    except OSError:
        return True
    if _PRIVATE_MARK in content:
        return True
    if any(mark in content for mark in _PUBLIC_MARKS):
        return False
    # The file has no known PEM header, so its name decides.
    return "key" in os.path.basename(source).lower()
