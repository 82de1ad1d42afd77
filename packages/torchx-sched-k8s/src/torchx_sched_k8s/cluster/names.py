"""Names that a cluster accepts, for apps and roles that may be called anything.

Everything of an app is named ``<app>-<random id>``, and ``-<role>`` after that for what belongs to
one role. Pods are reached under such names, so all of them are labels of DNS, of 63 characters at
most with whatever the cluster appends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import DNS_LABEL, DNS_SERVICE, NameRule, fit_name, fit_names

_LONGEST = 63
#: A dash and the random part of an app's name.
_UNIQUE = 15
_OTHERS = re.compile(r"[^a-z0-9-]")
_PORT = NameRule(15, "a-z0-9-", first="a-z", last="a-z0-9", lower=True, fallback="port")


@dataclass(frozen=True)
class AppNames:
    """What an app and its roles are called in the cluster.

    Args:
        app_id: the app; unique, and a service may have this name
        roles: the part of a name that stands for a role, by the role's name
    """

    app_id: str
    roles: dict[str, str]


def app_names(app: str, roles: Iterable[str], tail: int) -> AppNames:
    """Chooses names for a new app.

    Args:
        app: its name
        roles: names of its roles
        tail: how many characters will follow the role's in a pod's name
    """
    roles = list(roles)
    room = _LONGEST - _UNIQUE - len("-") - tail
    whole = len(fit_name(app, DNS_SERVICE))
    longest = max((len(fit_name(role, DNS_LABEL)) for role in roles), default=1)
    if whole + longest > room:
        longest = min(longest, max(room // 2, room - whole))
    name = fit_name(app, DNS_SERVICE.within(room - longest))
    return AppNames(make_unique(name), fit_names(roles, DNS_LABEL.within(longest)))


def normalize_str(data: str) -> str:
    """Returns a name in lower case, without what a host name cannot have; possibly empty, and of
    any length.
    """
    return _OTHERS.sub("", data.lower()).lstrip("-")


def normalized(app: str, roles: Iterable[str], tail: int) -> AppNames:
    """Chooses names as :func:`app_names`, from what :func:`normalize_str` leaves of them; users of
    Volcano know their pods by such names.
    """
    roles = list(roles)
    plain = [normalize_str(role) for role in roles]
    if not all(plain) or len(set(plain)) < len(roles):
        return app_names(normalize_str(app) or app, roles, tail)
    names = app_names(normalize_str(app) or app, plain, tail)
    return AppNames(names.app_id, dict(zip(roles, names.roles.values(), strict=True)))


def port_names(names: Iterable[str]) -> dict[str, str]:
    """Returns names of ports as a cluster accepts them: letters, digits and single dashes."""
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
