"""Mask secrets in text for people: by the names of values, and by their shapes.

This module alone decides what a secret is. Requests that a scheduler receives are never masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from torchx_specs.model.secrets import is_secret_reference

#: The text that replaces a secret.
MASK = "***"

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET = frozenset(
    {"authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt"}
    | {"secrets", "tokens", "webhook", "webhooks"}
)
# PGPASSWORD and HFTOKEN are one word.
_SECRET_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey")
# As the last of several words: SSH_KEY. PWD alone is the working directory.
_SECRET_LAST = {"auth", "dsn", "key", "pass", "pat", "pwd"}
# A name that ends so is about a secret, and its value is not one: SECRET_NAME, TOKEN_FILE.
_ABOUT = frozenset(
    {"arn", "class", "count", "dir", "file", "files", "length", "limit", "name", "names", "path"}
    | {"policy", "ref", "refs", "seconds", "type"}
)
_PLAIN = {"label", "max", "min", "n", "num", "partition", "primary", "public", "topology"}
# The fields of objects that refer to a secret of Kubernetes or AWS.
_REFERENCE = frozenset(
    {"audience", "defaultMode", "expirationSeconds", "items", "key", "name", "namespace"}
    | {"optional", "path", "secretName", "valueFrom"}
)
_REFERRING = {"name", "path", "secretName"}


def is_secret(name: str) -> bool:
    """Return True if a value with this name is probably a secret.

    >>> [is_secret(n) for n in ("token", "apiKey", "PGPASSWORD", "MYSQL_PWD", "AWS_SECRET_ID")]
    [True, True, True, True, True]
    >>> [is_secret(n) for n in ("key_name", "PWD", "TOKEN_FILE", "max_tokens", "topologyKey")]
    [False, False, False, False, False]
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    if words[-1] in ("key", "tokens") and not _PLAIN.isdisjoint(words):
        return False
    return (
        not _SECRET.isdisjoint(words)
        or any(word.endswith(_SECRET_ENDS) for word in words)
        or (words[-1] in _SECRET_LAST and (len(words) > 1 or words[-1] == "auth"))
        or words[-2:] == ["connection", "string"]
        or words == ["sshpass"]
    )


def masked_value(name: str, value: Any) -> Any:
    """Return a copy of a value with its secrets masked: all of it if its name suggests a secret.

    Empty values, booleans and references to secrets (``${secret:NAME}``, a Kubernetes
    ``secretKeyRef``) stay visible.
    """
    if value in (None, "") or isinstance(value, bool) or not is_secret(name):
        return masked(value)
    return masked(value) if _refers(value) else MASK


def masked(value: Any) -> Any:
    """Return a copy of nested data with secrets masked.

    Secrets are values with names such as ``token`` (see :func:`is_secret`), in mappings, in
    ``{"name": ..., "value": ...}`` as Kubernetes and AWS write environment variables, and in
    command lines; secrets within text (see :func:`masked_text`); and the data of Kubernetes
    Secrets.
    """
    if isinstance(value, Mapping):
        return _masked_mapping(value)
    if isinstance(value, (list, tuple)):
        return list(_masked_items(value))
    return masked_text(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """Return ``text`` with passwords of URLs, private keys, and tokens of known services masked."""
    if len(text) < _SHORTEST:
        return text
    return _shapes().sub(lambda found: f"{found[1] or found[2] or ''}{MASK}", text)


def _masked_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    if {str(key).lower() for key in value} == {"name", "value"}:
        name, _ = sorted(value, key=str.lower)
        return {k: v if k == name else masked_value(str(value[name]), v) for k, v in value.items()}
    if value.get("kind") == "Secret":
        return {
            k: dict.fromkeys(v, MASK) if k in ("data", "stringData") and v else masked(v)
            for k, v in value.items()
        }
    return {key: masked_value(str(key), item) for key, item in value.items()}


def _masked_items(items: Sequence[Any]) -> Iterator[Any]:
    """Yield the items of a list; in a command line, mask the values of options."""
    option = ""
    for item in items:
        if not isinstance(item, str):
            option = ""
            yield masked(item)
        elif option and not item.startswith("-"):
            yield masked_value(option, item)
            option = ""
        else:
            option, equals, text = item.partition("=") if item.startswith("-") else ("", "", "")
            yield f"{option}={masked_value(option, text)}" if equals else masked_text(item)
            option = "" if equals else option


def _refers(value: Any) -> bool:
    """Return True if a value only names secrets that are stored elsewhere."""
    if isinstance(value, str):
        return is_secret_reference(value)
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, Mapping) and _refers(item) for item in value)
    return (
        isinstance(value, Mapping)
        and value.keys() <= _REFERENCE
        and not _REFERRING.isdisjoint(value)
    )


# No shape is shorter: "a://:p@h".
_SHORTEST = 7


@cache
def _shapes() -> re.Pattern[str]:
    """Return the pattern of secrets in text; its groups stay visible."""
    return re.compile(
        r"(://[^/@\s:]*:)[^/\s\"'<>,]+(?=@)"  # the password of a URL
        r"|(?<=[?&])((?:[\w-]*(?:token|secret|password|signature|api_?key)|sig)=)[^&\s#\"']+"
        r"|(?<=://hooks\.slack\.com/)[\w/-]+|(?<=/api/webhooks/)[\w/-]+"
        r"|(?<=\.webhook\.office\.com/)[\w/@-]+"
        r"|\b(?:(?:gh[opsru]|hf|npm)_[a-z\d]{30,}|github_pat_\w{20,}|glpat-[\w-]{20,})"
        r"|\b(?:sk-(?:[a-z]+\d*-){0,3}\w{20,}|xox[abeprs]-[\w-]{10,}|dckr_pat_[\w-]{20,}|pypi-[\w-]{50,})"
        r"|\b(?:AIza[\w-]{35}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
        re.IGNORECASE,
    )
