"""Make names that a cluster accepts from the names of apps and roles.

An app's objects are named ``<app>-<random id>``; the names of one role's objects end with
``-<role>``. The cluster makes host names of pods from these names and appends an index. The result
must be a DNS label, which has at most 63 characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import DNS_LABEL, DNS_SERVICE, NameRule, fit_name, fit_names
from torchx_specs.errors import RequestError

_LONGEST = 63
#: Length of the suffix that makes an app's name unique: a dash and a random id.
_UNIQUE = 15
_OTHERS = re.compile(r"[^a-z0-9-]")
_PORT = NameRule(15, "a-z0-9-", first="a-z", last="a-z0-9", lower=True, fallback="port")


def app_names(
    app: str, roles: Sequence[str], tail: int, *, shorten: bool = True
) -> tuple[str, dict[str, str]]:
    """Return a unique name for a new app, valid for a Service, and the names of its roles.

    The result maps each role's name to the text that identifies the role in object names.

    Args:
        app: Name of the app.
        roles: Names of the app's roles.
        tail: Length of the text that the cluster appends to the role in a pod's name.
        shorten: Whether to shorten names that are too long.

    Raises:
        RequestError: The names are too long, and ``shorten`` is False.
    """
    room = _LONGEST - _UNIQUE - len("-") - tail
    whole = len(fit_name(app, DNS_SERVICE))
    fitted = {role: len(fit_name(role, DNS_LABEL)) for role in roles}
    longest = max(fitted.values(), default=1)
    if whole + longest > room:
        if not shorten:
            role = max(fitted, key=fitted.__getitem__)
            raise RequestError(
                f"a pod's name has at most {_LONGEST} characters, and exceeds this limit by"
                f" {whole + longest - room} or more with the app's name {app!r:.80}, a unique id,"
                f" the role's name {role!r:.80} and an index; use shorter names, or leave"
                " validate_spec unset to have them shortened"
            )
        longest = min(longest, max(room // 2, room - whole))
    name = fit_name(app, DNS_SERVICE.within(room - longest))
    return make_unique(name), fit_names(roles, DNS_LABEL.within(longest))


def normalize_str(data: str) -> str:
    """Convert a name to lower case; remove leading dashes and everything but a-z, 0-9 and dashes.

    The result may be empty, and may have any length.
    """
    return _OTHERS.sub("", data.lower()).lstrip("-")


def normalized_app_names(
    app: str, roles: Sequence[str], tail: int, *, shorten: bool = True
) -> tuple[str, dict[str, str]]:
    """Return names for a new app, normalized by :func:`normalize_str` as in older releases.

    Users of Volcano recognize their pods by these names. If the normalized names of two roles are
    equal, or one of them is empty, the roles get the names of :func:`app_names`.

    Args:
        app: Name of the app.
        roles: Names of the app's roles.
        tail: Length of the text that the cluster appends to the role in a pod's name.
        shorten: Whether to shorten names that are too long.

    Raises:
        RequestError: The names are too long, and ``shorten`` is False.
    """
    plain = [normalize_str(role) for role in roles]
    are_distinct = all(plain) and len(set(plain)) == len(roles)
    chosen = plain if are_distinct else roles
    app_id, names = app_names(normalize_str(app) or app, chosen, tail, shorten=shorten)
    return app_id, {role: names[name] for role, name in zip(roles, chosen, strict=True)}


def port_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a valid port name (letters, digits, single dashes); no two are equal."""
    single = {name: re.sub("-+", "-", _PORT.clean(name)) or _PORT.fallback for name in names}
    fitted = fit_names(single.values(), _PORT)
    taken: set[str] = set()
    found = {}
    for name, plain in single.items():
        candidate = fitted[plain]
        if candidate in taken:
            candidate = fit_name(f"{plain}.{name}", _PORT, distinct=True)
        taken.add(candidate)
        found[name] = candidate
    return found
