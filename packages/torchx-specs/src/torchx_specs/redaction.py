"""Mask secrets in text that people read; names and shapes of values identify the secrets.

This module alone decides what a secret is. Requests that a scheduler receives are never masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from torchx_specs.model.secrets import is_secret_reference

#: The text that replaces a secret.
MASK = "***"

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET = frozenset(
    {"authorization", "bearer", "cookie", "cookies", "cred", "credential", "credentials", "creds"}
    | {"apikeys", "jwt", "passwords", "secrets", "tokens", "webhook", "webhooks"}
)
# A word with one of these ends is a secret: PGPASSWORD and HFTOKEN count as one word.
_SECRET_ENDS = (
    *("password", "passwd", "passphrase", "passcode", "secret", "token", "apikey", "accesskey"),
    *("connstr", "keypass", "privatekey", "privkey", "secretkey", "sessid", "sshpass"),
)
_SECRET_PAIRS = {("api", "key"), ("api", "keys"), ("conn", "str"), ("connection", "string")}
# Secret at the end of a name: SSH_KEY. Alone, only AUTH, PW and _SECRET_VARIABLES are secret.
_SECRET_LAST = {"auth", "dsn", "key", "login", "pass", "pat", "pw", "pwd"}
# Secret in upper case only: a flag `--login`, a parameter `pass` and TorchX's sessions are public.
_SECRET_VARIABLES = {"LOGIN", "PASS", "SESSION"}
# API_KEY_V2 and DB_PASS_PROD are variants of API_KEY and DB_PASS.
_VARIANT = re.compile(r"v?\d+|backup|dev|live|new|old|prod|production|stage|staging|test")
# The value of a name with one of these last words is not the secret: SECRET_NAME, TOKEN_FILE.
_ABOUT = frozenset(
    {"arn", "class", "count", "dir", "file", "files", "length", "limit", "name", "names", "path"}
    | {"policy", "ref", "refs", "seconds", "type"}
)
_PLAIN = {"label", "max", "min", "n", "num", "partition", "primary", "public", "topology"}
# An object with no other fields than these refers to a secret of Kubernetes or AWS.
_REFERENCE = frozenset(
    {"audience", "defaultMode", "expirationSeconds", "items", "key", "name", "namespace"}
    | {"optional", "path", "secretName", "valueFrom"}
)
_REFERRING = {"name", "path", "secretName"}


def is_secret(name: str) -> bool:
    """Return True if a value with this name is probably a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while words[1:] and _VARIANT.fullmatch(words[-1]):
        words.pop()
    if not words or words[-1] in _ABOUT:
        return False
    if words[-1] in ("key", "tokens") and not _PLAIN.isdisjoint(words):
        return False
    return (
        not _SECRET.isdisjoint(words)
        or any(word.endswith(_SECRET_ENDS) for word in words)
        or (words[-1] in _SECRET_LAST and (len(words) > 1 or words[-1] in ("auth", "pw")))
        or not _SECRET_PAIRS.isdisjoint(pairwise(words))
        or name in _SECRET_VARIABLES
    )


def masked_value(name: str, value: Any) -> Any:
    """Return a copy of a value with secrets masked.

    If the name suggests a secret (:func:`is_secret`), the whole value is masked. Empty values,
    booleans and references to secrets (``${secret:NAME}``, a Kubernetes ``secretKeyRef``) stay
    visible.
    """
    if value in (None, "") or isinstance(value, bool) or not is_secret(name):
        return masked(value)
    return masked(value) if _refers(value) else MASK


def masked(value: Any) -> Any:
    """Return a copy of nested data with secrets masked.

    This masks values with names such as ``token`` (:func:`is_secret`) in mappings, in command
    lines, and in the ``{"name": ..., "value": ...}`` and ``{"Key": ..., "Value": ...}`` of
    Kubernetes and AWS. It also masks secrets within text (:func:`masked_text`), and the data of
    Kubernetes Secrets.
    """
    if isinstance(value, Mapping):
        return _masked_mapping(value)
    if isinstance(value, (list, tuple)):
        return list(_masked_items(value))
    return _masked_string(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """Mask secrets of known forms in a text: passwords, tokens, signatures and private keys."""
    if len(text) < 6:
        return text  # the shortest match of _shapes() is ";pwd=x"
    return _shapes().sub(lambda found: f"{''.join(filter(None, found.groups()))}{MASK}", text)


def _masked_string(text: str) -> str:
    """Mask the secrets in a text; in JSON, such as an annotation, also mask values by name."""
    if text.startswith(("{", "[")):
        import json

        try:
            data = json.loads(text)
            shown = masked(data)
        except (ValueError, RecursionError):
            return masked_text(text)
        return text if shown == data else json.dumps(shown)
    return masked_text(text)


def _masked_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    if {str(key).lower() for key in value} in ({"name", "value"}, {"key", "value"}):
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
        if option and not (isinstance(item, str) and item.startswith("-")):
            yield masked_value(option, item)
            option = ""
        elif not isinstance(item, str):
            yield masked(item)
        else:
            name, equals, text = item.partition("=")
            is_pair = equals and _PAIR_NAME.fullmatch(name)
            yield f"{name}={masked_value(name, text)}" if is_pair else _masked_string(item)
            option = item if item.startswith("-") and not equals else ""


def _refers(value: Any) -> bool:
    """Return True if a value only names secrets that are stored elsewhere."""
    if isinstance(value, str):
        return is_secret_reference(value)
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, Mapping) and _refers(item) for item in value)
    keys = value.keys() if isinstance(value, Mapping) else set()
    return keys <= _REFERENCE and not _REFERRING.isdisjoint(keys)


# Matches the name in "--token=x", "HF_TOKEN=x", or "+db.password=x" as Hydra writes it.
_PAIR_NAME = re.compile(r"[\w.+/-]+")


@cache
def _shapes() -> re.Pattern[str]:
    """Return the pattern of secrets in text; the text of the pattern's groups stays visible."""
    return re.compile(
        r"(https?://)(?!(?:git|oauth2|user)@)[^/@\s:?#\"'<>,]+(?=(?::|:x-oauth-basic)?@)"  # a token
        r"|(://[^/@\s:]*:)[^/\s\"'<>,]+(?=@)"  # the password of a URL
        r"|(?<=[?&])((?:[\w-]*(?:token|secret|password|signature|api_?key)|sig)=)[^&\s#\"']+"
        r"|(?<=[\"'])([\w.-]*(?:token|secret|password|api_?key)[\"']\s*:\s*[\"'])[^\"']+"  # a dict
        r"|(?<=://hooks\.slack\.com/)[\w/-]+|(?<=/api/webhooks/)[\w/-]+"
        r"|(?<=\.webhook\.office\.com/)[\w/@-]+"
        r"|(?<![a-z])((?:password|passwd|accountkey|sharedaccesskey|(?<=;)pwd)\s*=\s*)"
        r"(?![\s$])[^;,&\s\"']+"  # connection strings
        r"|(?<![\w.-])((?:[\w.-]*(?:token|secret|passw(?:or)?d|api[_-]?key)=|--?[\w-]*(?:token|secret"
        r"|passw(?:or)?d|api[_-]?key) +)[\"']?)(?![-$])(?:(?<=\")[^\"]+|(?<=')[^']+|[^;,&\s\"']+)"
        r"|(\A(?:bearer|basic) )\S+\Z"
        r"|\b(?:(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)(?!(?:bearer|basic)\s)[^\s\"',]+"
        r"|(?-i:((?:Bearer|Basic) +)(?=\S*[\d=]|\w+[A-Z]\w)[\w.~+/-]{8,}=*|A[KS]IA[A-Z\d]{16}\b)"
        r"|(?:gh[opsru]|hf|npm)_[a-z\d]{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
        r"|sk-(?:[a-z]+\d*-){0,3}\w{20,}|xox[abeprs]-[\w-]{10,}|dckr_pat_[\w-]{20,}|pypi-[\w-]{50,}"
        r"|[rs]k_(?:live|test)_\w{8,}|hv[bs]\.[\w-]{8,}|gocspx-[\w-]{8,}|do[opr]_v1_\w{8,}"
        r"|AIza[\w-]{35}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
        re.IGNORECASE,
    )
