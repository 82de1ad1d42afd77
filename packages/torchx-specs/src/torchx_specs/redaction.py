"""Mask secrets in text that people read; names and shapes of values identify the secrets.

This module alone decides what a secret is. Requests that a scheduler receives are never masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from torchx_specs.model.constants import MASK as MASK

#: The start of a reference to a secret, ``${secret:NAME}`` or ``${secret:NAME/KEY}``.
REFERENCE_START = "${secret:"
#: The longest name or key in a reference, in characters.
LONGEST_NAME = 253
# A name of a Kubernetes object is also a valid name of a file and of an AWS secret. The first
# character is a letter, because bash reads ${secret:0} as a substring of the variable `secret`.
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME = rf"(?=[a-z]){_LABEL}(?:\.{_LABEL})*"
_KEY = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET = frozenset(
    {"authorization", "bearer", "cookie", "cookies", "cred", "credential", "credentials", "creds"}
    | {"apikeys", "jwt", "passwords", "secrets", "tokens", "webhook", "webhooks"}
)
# A word with one of these ends is a secret: PGPASSWORD and HFTOKEN count as one word.
_SECRET_ENDS = (
    *("password", "passwd", "passphrase", "passcode", "secret", "token", "apikey"),
    *(
        "accesskey",
        "accountkey",
        "connectionstring",
        "connstr",
        "keypass",
        "privatekey",
        "privkey",
        "secretkey",
    ),
    *("sessid", "sshpass"),
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
_MODEL_TOKENS = {"bos", "cls", "eos", "mask", "max", "min", "n", "num", "pad", "sep", "unk"}
_PLAIN = {"label", "max", "min", "n", "num", "partition", "primary", "public", "topology"}
# An object with no other fields than these refers to a secret of Kubernetes or AWS.
_REFERENCE = frozenset(
    {"audience", "defaultMode", "expirationSeconds", "items", "key", "name", "namespace"}
    | {"optional", "path", "secretName", "valueFrom"}
)
_REFERRING = {"name", "path", "secretName"}


def is_secret_reference(value: str) -> bool:
    """Return True if a value is a valid reference to a secret, which is not a secret."""
    if not (value.startswith(REFERENCE_START) and value.endswith("}")):
        return False
    name, slash, key = value[len(REFERENCE_START) : -1].partition("/")
    return is_secret_name(name) and (not slash or is_secret_key(key))


def is_secret_name(text: str) -> bool:
    """Return True if a text is a valid name of a secret in a reference."""
    return len(text) <= LONGEST_NAME and re.fullmatch(_NAME, text) is not None


def is_secret_key(text: str) -> bool:
    """Return True if a text is a valid key of a value in a secret."""
    return len(text) <= LONGEST_NAME and re.fullmatch(_KEY, text) is not None


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case, without the words of a variant at its end."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while words[1:] and _VARIANT.fullmatch(words[-1]):
        words.pop()
    return words


@lru_cache(4096)  # texts repeat names
def is_secret(name: str) -> bool:
    """Return True if a value with this name is probably a secret."""
    words = _words(name)
    if not words or words[-1] in _ABOUT:
        return False
    if words[-1] in ("key", "tokens") and not _PLAIN.isdisjoint(words):
        return False
    if words[-1] == "token" and not _MODEL_TOKENS.isdisjoint(words):
        return False
    return (
        not _SECRET.isdisjoint(words)
        or any(word.endswith(_SECRET_ENDS) for word in words)
        or (words[-1] in _SECRET_LAST and (len(words) > 1 or words[-1] in ("auth", "pw")))
        or (name.startswith("-") and words[-1] in ("pass", "pwd"))
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
    if name == "--pwd" and str(value).startswith(_PATHS):
        return value  # a folder, for Apptainer
    return masked(value) if _refers(value) else MASK


def masked(value: Any) -> Any:
    """Return a copy of nested data with secrets masked.

    This masks values with names such as ``token`` (:func:`is_secret`) in mappings, in command
    lines, and in the ``{"name": ..., "value": ...}`` and ``{"Key": ..., "Value": ...}`` of
    Kubernetes and AWS. It also masks secrets within text (:func:`masked_text`), and the data of
    Kubernetes Secrets. An object of a dataclass becomes a dict.
    """
    if isinstance(value, str):
        return _masked_string(value)
    if isinstance(value, Mapping):
        return _masked_mapping(value)
    if isinstance(value, (list, tuple)):
        return list(_masked_items(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _masked_mapping({field.name: getattr(value, field.name) for field in fields(value)})
    return value


def masked_text(text: str) -> str:
    """Mask secrets of known forms in a text: passwords, tokens, signatures and private keys."""
    if len(text) < 6:
        return text  # the shortest match of a shape is ";pwd=x"
    padded = f" {_lowered(text)}"  # some triggers begin with a space
    for shape in _SHAPES:
        for trigger in shape.triggers:
            if trigger in padded:
                text = _masked_shape(shape, text, padded[1:])
                padded = f" {_lowered(text)}"
                break
    return text


def _lowered(text: str) -> str:
    """Return a text of the same length in lower case: patterns without upper case are faster."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(c.lower() if c.isascii() else c for c in text)  # "İ" becomes two characters


def _masked_shape(shape: _Shape, text: str, lowered: str) -> str:
    """Return a text with the secrets of one form masked."""
    search = re.compile(shape.pattern).search
    parts, done, at = [], 0, 0
    while (found := search(text if shape.is_cased else lowered, at)) is not None:
        start = found.end(1) if shape.start is None else shape.start(found, text)
        if start < 0:
            at = found.end(1)  # the value may itself have a name and a value
            continue
        parts += [text[done:start], MASK]
        done = at = found.end()
    return "".join([*parts, text[done:]])


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
    if len(value) == 2 and {str(key).lower() for key in value} in (
        {"name", "value"},
        {"key", "value"},
    ):
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
    for index, item in enumerate(items):
        if option and not (isinstance(item, str) and item.startswith("-")):
            yield _masked_login(option, item, items, index) or masked_value(option, item)
            option = ""
        elif not isinstance(item, str):
            yield masked(item)
        else:
            name, equals, text = item.partition("=")
            is_option = item.startswith("-")
            login = is_option and _masked_login(item[:2], item[2:], items, index, joined=True)
            if login:
                yield item[:2] + login
            elif equals and _PAIR_NAME.fullmatch(name):
                login = is_option and _masked_login(name, text, items, index)
                yield f"{name}={login or masked_value(name, text)}"
            else:
                yield _masked_string(item)
            option = item if is_option and not equals else ""


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


class _Shape(NamedTuple):
    """One form of secrets in text.

    Attributes:
        triggers: A text without these, in lower case, has no secret of this form. This check is
            much faster than the pattern.
        pattern: Matches in the text in lower case. The first group stays visible, the rest of the
            match is masked.
        start: Called with a match and the original text; returns where the secret begins, or -1 if
            there is none. None means the end of the first group.
        is_cased: Whether the pattern matches in the original text.
    """

    triggers: tuple[str, ...]
    pattern: str
    start: Callable[[re.Match[str], str], int] | None = None
    is_cased: bool = False


# Text that is_secret() needs for a name to be secret, except for the short names in _RARE.
_NAMES = (
    *("token", "secret", "pass", "pwd", "key", "auth", "cred", "cookie", "jwt", "webhook", "dsn"),
    *("bearer", "login", "connstr", "conn_str", "connection", "sess", "pw"),
)
_RARE = ("pat=", "pat:", "pat ", "pat'", 'pat"', "conn-str")
_QUOTE = r"\\*[\"']"
# The value after a quote ends with the quote, another value with a space or a separator. A value
# that is only a variable or a reference stays.
_VALUE = (
    r"(?:(?<=[\"'])(?!\$(?:\{[^\"'}]+\}|[a-z_]\w*)[\"'])|(?![-$\"']))"
    r"(?P<value>(?<=\")[^\"]+|(?<=')[^']+|[|>][+-]?[^\S\n]*\n[^\n]+|[^;,&\s\"']+)"
)
# These words after "token:" or "--token" are prose, types or literals.
_PROSE = frozenset(
    {"a", "an", "and", "any", "are", "at", "be", "can", "cannot", "default", "empty", "expected"}
    | {"expired", "field", "for", "from", "has", "in", "invalid", "is", "it", "latest", "may"}
    | {"missing", "must", "no", "not", "of", "on", "optional", "or", "rejected", "required"}
    | {
        "should",
        "that",
        "the",
        "to",
        "too",
        "unknown",
        "unset",
        "was",
        "were",
        "whether",
        "will",
        "with",
    }
    | {"bool", "bytes", "false", "float", "int", "list", "none", "null", "str", "string", "true"}
    | {"basic", "bearer", "digest", "negotiate", "token", "wrong"}
)
_VERSION = re.compile(r"[vV]?\d[\d.]*(?:[a-zA-Z]{1,3}\d*)?%?")  # or a number with a unit
_RANDOM = re.compile(r"(?=.*[A-Za-z]).*\d|.*[!@#$%^~]", re.DOTALL)
_FILE = re.compile(r"\.(?:py|json|ya?ml|toml|txt|sh|pem|cfg|ini)\Z")
_PATHS = ("/", "./", "../", "~")
_LINE_END = re.compile(r"[\"']?[ \t\r,}]{0,8}(?:#|\n|\Z)")


def _start_in_pair(found: re.Match[str], text: str) -> int:
    """Return where the value in ``name: value`` or ``--name value`` begins; -1 if it is public."""
    name, sep, value = text[slice(*found.span("name"))], found["sep"], found["value"]
    is_path = name == "--pwd" and value.startswith(_PATHS)
    if is_path or not value.strip("[{(") or not is_secret(name):
        return -1
    return found.start("value") if _is_secret_pair(found, name, sep, value) else -1


def _is_secret_pair(found: re.Match[str], name: str, sep: str, value: str) -> bool:
    words = _words(name)
    joined = "".join(words[-2:])
    is_strong = joined.endswith(_SECRET_ENDS) or not _SECRET.isdisjoint({words[-1], joined})
    # "token_loss: 2" is about tokens, and "sort_key: x" is often public.
    if not is_strong and (
        words[-1] not in _SECRET_LAST or (name[:1].islower() and not _looks_random(value))
    ):
        return False
    if sep != "=" and value.strip("\"'.,:;()! ").lower() in _PROSE:
        return False
    mark = sep.strip("\\\"', \t")
    if name.startswith("-"):
        return not value.startswith("-") and (sep != ": " or _looks_random(value))
    if not mark:
        return False  # only an option has its value after a space
    before = found.string[found.start() - 1 : found.start()]
    if mark == ":" and (before == "/" or _FILE.search(name) or _VERSION.fullmatch(value)):
        return bool(sep[0] in "\\\"'" and before != "/")  # a file, its line, the tag of an image
    if sep == "=" or sep[0] in "\\\"'":
        return bool(found["quote"]) or sep == "=" or "(" not in value
    if mark == "=":  # spaces around it: a program, or a file of settings
        is_plain = found["quote"] or "passw" in name.lower()
        return bool(is_plain) or _is_line(found) or _looks_random(value)
    if name.isupper() or "passw" in name.lower() or len(words) > 1:
        return True
    return (_looks_random(value) and before != ":") or _is_line(found)


def _looks_random(value: str) -> bool:
    """Return True if a value is no word, number, version or path."""
    is_public = len(value) < 5 or value.startswith(_PATHS) or "://" in value[:16]
    return not is_public and not _VERSION.fullmatch(value) and bool(_RANDOM.match(value[:256]))


def _is_line(found: re.Match[str]) -> bool:
    """Return True if a name and a value are a whole line, as in a file of settings."""
    if "(" in found["value"] or not _LINE_END.match(found.string, found.end()):
        return False
    before = found.string[max(0, found.start() - 80) : found.start()]
    return before.rpartition("\n")[2].strip() in ("", "-", "export", "{")


_REGISTRY = r"(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|crane|oc|az)\W+(?:.+\W)?login"
# The programs whose options have a password, in the next argument or joined. "-p 8080:80" is a port
# and "-p gpu" a partition, so the program decides.
_LOGINS = {
    "-p": rf"sshpass|{_REGISTRY}",
    "-P": r"(?:un)?zip|sqlcmd|ipmitool",
    "-a": "redis-cli",
    "-w": r"ldap\w+",
}
# `mysql -p db` reads the password from the terminal; only `mysql -pS3cret` has it.
_JOINED_LOGINS = {"-p": r"mysql\w*|mariadb[\w-]*|7z\w?"}
# The value of these options is NAME:PASSWORD for these programs, and for others if it looks so.
_USERS = ("-u", "-U", "--user", "--proxy-user", "--creds")
_CLIENTS = "curl|https?|xh|wget|skopeo|buildah|podman|oras"
# For these programs, it is a user and a group.
_NO_CLIENTS = r"(?:docker|podman|nerdctl)\W+(?:.+\W)?(?:run|exec|create)|chown|sudo|apptainer"
_WINDOW = 200


def _masked_login(
    option: str, value: Any, argv: Sequence[Any], index: int, *, joined: bool = False
) -> str:
    """Return the masked value of an option such as ``-u``; an empty string if it is public.

    Args:
        option: The option.
        value: Its value.
        argv: The command line.
        index: The index of the value.
        joined: Whether option and value are one argument.
    """
    if (option not in _LOGINS and option not in _USERS) or not isinstance(value, str):
        return ""
    before = " ".join(map(str, argv[max(0, index - 20) : index]))[-_WINDOW:]
    start = _start_in_login(option, value, before, joined)
    return "" if start < 0 else value[:start] + MASK


def _start_in_login(option: str, value: str, before: str, joined: bool) -> int:
    """Return where the password begins in an option's value; -1 if there is none."""
    if option in _USERS:
        name, _, password = value.partition(":")
        is_public = not name or not password or password.startswith(("$", "//"))
        if is_public or _runs(_NO_CLIENTS, before):
            return -1
        return len(name) + 1 if _looks_random(password) or _runs(_CLIENTS, before) else -1
    tables = (_LOGINS, _JOINED_LOGINS) if joined else (_LOGINS,)
    runs = any(option in table and _runs(table[option], before) for table in tables)
    return 0 if runs and value and value[0] != "-" else -1


def _runs(programs: str, command: str) -> bool:
    """Return True if a command line starts one of the programs."""
    return re.search(rf"(?<![\w.-])(?:{programs})(?![\w.-])", command) is not None


def _start_in_login_text(found: re.Match[str], text: str) -> int:
    option, joined = text[slice(*found.span("option"))], not found["sep"]
    if joined and option.startswith("--"):
        return -1
    before = found.string[max(0, found.start() - _WINDOW) : found.start()]
    start = _start_in_login(option, found["value"], re.split(r"[;|&\n]", before)[-1], joined)
    return -1 if start < 0 else found.start("value") + start


#: The forms of secrets in text, in the order in which they are masked.
_SHAPES = (
    _Shape(
        ("private key-----",),
        r"()-----begin [a-z ]*private key-----[^-]*(?:-----end [a-z ]*private key-----)?",
    ),
    # the token or the password of a URL
    _Shape(
        ("@",),
        r"(https?://)(?!(?:git|oauth2|user)@)[^/@\s:?#\"'<>,]+(?=(?::|:x-oauth-basic)?@)",
    ),
    _Shape(("@",), r"(://[^/@\s:]*:)(?!x-oauth-basic@)[^/\s\"'<>,]+(?=@)"),
    _Shape(("sig",), r"([?&](?:[\w-]*signature|sig)=)[^&\s#\"']+"),
    _Shape(
        ("hooks.slack.com/", "/api/webhooks/", ".webhook.office.com/"),
        r"(://hooks\.slack\.com/|/api/webhooks/|\.webhook\.office\.com/)[\w/@-]+",
    ),
    # headers
    _Shape(
        ("authorization",),
        r"\b(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)"
        r"(?!(?:bearer|basic)\s)[^\s\"',]+",
    ),
    _Shape(("cookie",), r"\b(cookie[\"']?:\s*[\"']?(?=[\w.-]+=))[^\n\"']+"),
    _Shape(("bearer ", "basic "), r"(\A(?:bearer|basic) )\S+\Z"),
    _Shape(
        ("bearer ", "basic "),
        r"\b((?:Bearer|Basic) +)(?=\S*[\d=]|\w+[A-Z]\w)[\w.~+/-]{8,}=*",
        is_cased=True,
    ),
    # keys of known services
    _Shape(("akia", "asia"), r"()\bA[KS]IA[A-Z\d]{16}\b", is_cased=True),
    _Shape(
        ("ghp_", "gho_", "ghs_", "ghr_", "ghu_", "hf_", "npm_", "github_pat_", "glpat-"),
        r"()\b(?:(?:gh[opsru]|hf|npm)_[a-z\d]{30,}|github_pat_\w{20,}|glpat-[\w-]{20,})",
    ),
    _Shape(
        ("sk-", "xox", "dckr_pat_", "pypi-", "k_live_", "k_test_"),
        r"()\b(?:sk-(?:[a-z]+\d*-){0,3}\w{20,}|xox[abeprs]-[\w-]{10,}|dckr_pat_[\w-]{20,}"
        r"|pypi-[\w-]{50,}|[rs]k_(?:live|test)_\w{8,})",
    ),
    _Shape(
        ("hvs.", "hvb.", "gocspx-", "_v1_", "aiza", "eyj"),
        r"()\b(?:hv[bs]\.[\w-]{8,}|gocspx-[\w-]{8,}|do[opr]_v1_\w{8,}|aiza[\w-]{35}"
        r"|eyj[\w-]{10,}\.eyj[\w-]{10,}\.[\w-]+)",
    ),
    # connection strings, .netrc, {"name": "HF_TOKEN", "value": "x"}
    _Shape((";pwd",), r"(;pwd\s*=\s*)(?![\s$])[^;,&\s\"']+"),
    _Shape(
        ("machine", "default"),
        r"\b((?:machine\s+\S+|default(?=\s+login))\s+(?:(?:login|account)\s+\S+\s+){0,2}"
        r"password\s+)\S+",
    ),
    _Shape(
        ("value'", 'value"', "value:"),
        rf"((?:name|key)(?:{_QUOTE})?:\s*(?:{_QUOTE})?(?P<name>[\w.-]+)(?:{_QUOTE})?,"
        rf"\s*(?:{_QUOTE})?value(?:{_QUOTE})?:\s*(?:{_QUOTE})?){_VALUE}",
        lambda found, text: found.end(1) if is_secret(text[slice(*found.span("name"))]) else -1,
    ),
    # name=value, name: value, "name": "value", --name value
    _Shape(
        (*_NAMES, *_RARE),
        rf"(?<![\w.$-])(?<!\$\{{)((?=[\w.-]*(?:{'|'.join(_NAMES)}|pat\b|conn-str))(?P<name>[\w.-]+)"
        rf"(?P<sep>(?:{_QUOTE})?[^\S\n]*[:=][^\S\n]*|(?:{_QUOTE},?)?[^\S\n]+)"
        rf"(?P<quote>b?{_QUOTE})?){_VALUE}",
        _start_in_pair,
    ),
    # options of certain programs
    _Shape(
        (
            *("--user", "--proxy-user", "--creds"),
            *(f"{before}-{letter}" for before in " '\"" for letter in "upaw"),
        ),
        rf"(?<![\w-])((?P<option>--user|--proxy-user|--creds|-[upaw])"
        rf"(?P<sep>=|(?:{_QUOTE},?)?[^\S\n]+|)(?:{_QUOTE})?){_VALUE}",
        _start_in_login_text,
    ),
)
