"""Template variables in ``Role.args``, ``Role.env`` and ``Role.metadata``.

A string is a template if it contains a macro as ``$name`` or ``${name}``, escaped or not. The rules
of :meth:`string.Template.safe_substitute` apply to a template: unknown names stay, and ``$$``
becomes ``$``. Any other string reaches the job unchanged, including ``$$``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx_specs.model.constants import MISSING

if TYPE_CHECKING:
    from torchx_specs.model.app import Role

_NAMES = ("img_root", "base_img_root", "app_id", "replica_id", "rank0_env")
_MACRO = re.compile(r"\$(?:\{(?:%s)\}|(?:%s)(?![_a-zA-Z0-9]))" % (("|".join(_NAMES),) * 2))
_VARIABLE = re.compile(r"\$(?:(\$)|([_a-zA-Z][_a-zA-Z0-9]*)|\{([_a-zA-Z][_a-zA-Z0-9]*)\})")


def is_template(text: str) -> bool:
    """Return True if ``text`` contains a macro."""
    return "$" in text and _MACRO.search(text) is not None


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with its macros replaced; text without a macro is returned unchanged."""
    if not is_template(text):
        return text
    # This is three times as fast as string.Template.
    return _VARIABLE.sub(lambda m: "$" if m[1] else str(values.get(m[2] or m[3], m[0])), text)


def percent_format(text: str) -> str:
    """Return the format with which the operator ``%`` substitutes all macros of ``text``.

    It is five times as fast as :func:`substitute`, and needs a value for every macro.

    >>> percent_format("100% of ${app_id}/$replica_id") % {"app_id": "a", "replica_id": "7"}
    '100% of a/7'
    """

    def convert(match: re.Match[str]) -> str:
        name = match[2] or match[3]
        return "$" if match[1] else f"%({name})s" if name in _NAMES else match[0]

    return _VARIABLE.sub(convert, text.replace("%", "%%"))


class macros:  # noqa: N801 - a namespace of names, lower-case in every user's code
    """Variables that are substituted in ``Role.args``, ``Role.env`` and ``Role.metadata`` only.

    1. ``img_root`` - root directory of the pulled image
    2. ``app_id`` - application id as assigned by the scheduler
    3. ``replica_id`` - index of the replica within its role (0, 1, ...); a replacement after a
       failure has the same index
    4. ``rank0_env`` - name of the environment variable with the host of rank 0; resolve it in a
       shell (``$${rank0_env}``) or in the application. Not available on all schedulers.
    5. ``base_img_root`` - deprecated

    >>> from torchx_specs import AppDef, Role
    >>> trainer = Role(
    ...     name="trainer",
    ...     image="my_image:latest",
    ...     entrypoint="train.py",
    ...     args=["--app_id", macros.app_id],
    ...     env={"IMG_ROOT": macros.img_root},
    ... )
    >>> app = AppDef("train_app", roles=[trainer])
    """

    img_root = "${img_root}"
    base_img_root = "${base_img_root}"
    app_id = "${app_id}"
    replica_id = "${replica_id}"
    rank0_env = "${rank0_env}"

    @dataclass
    class Values:
        """Values of the macros in one replica; a macro with the value MISSING is not replaced."""

        img_root: str
        app_id: str
        replica_id: str
        rank0_env: str = MISSING
        base_img_root: str = "DEPRECATED"

        def apply(self, role: Role) -> Role:
            """Return a deep copy of ``role`` with the macros substituted."""
            values = self.to_dict()
            new = copy.deepcopy(role)
            new.args = [substitute(arg, values) for arg in role.args]
            new.env = {key: substitute(value, values) for key, value in role.env.items()}
            new.metadata = substitute_nested(role.metadata, values)
            return new

        def substitute(self, arg: str) -> str:
            """Return ``arg`` with the macros substituted."""
            return substitute(arg, self.to_dict())

        def to_dict(self) -> dict[str, Any]:
            """Return a dict from macro names to values."""
            return {name: value for name, value in vars(self).items() if value != MISSING}


def substitute_nested(value: Any, values: Mapping[str, str]) -> Any:
    """Return a copy of nested data with the macros in its strings substituted."""
    if isinstance(value, str):
        return substitute(value, values)
    if isinstance(value, dict):
        return {key: substitute_nested(item, values) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(substitute_nested(item, values) for item in value)
    return copy.deepcopy(value)
