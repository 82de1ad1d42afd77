"""Substitution of macros in a role that has many replicas."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TypeVar

from torchx_specs.model.app import Role
from torchx_specs.model.templates import is_template, macros, percent_format, substitute_nested

K = TypeVar("K")


class RoleTemplate:
    """A role that is searched for macros once, and rendered for thousands of replicas.

    The values of all macros are known; a value may not be MISSING.

    Callers may change the lists and dicts that :meth:`args`, :meth:`env` and :meth:`render` return.
    """

    def __init__(self, role: Role) -> None:
        self.role = role
        self._args = list(role.args)
        self._env = dict(role.env)
        self._arg_formats = _formats(enumerate(self._args))
        self._env_formats = _formats(self._env.items())

    def args(self, values: macros.Values) -> list[str]:
        """Return the arguments of one replica."""
        args = self._args.copy()
        for i, form in self._arg_formats:
            args[i] = form % vars(values)
        return args

    def env(self, values: macros.Values) -> dict[str, str]:
        """Return the environment of one replica."""
        env = self._env.copy()
        for key, form in self._env_formats:
            env[key] = form % vars(values)
        return env

    def render(self, values: macros.Values) -> Role:
        """Return the role of one replica, with its own arguments, environment and metadata.

        The values of all other fields are shared with the template's role.
        """
        role = copy.copy(self.role)
        role.args = self.args(values)
        role.env = self.env(values)
        role.metadata = substitute_nested(role.metadata, values.to_dict())
        return role


def _formats(texts: Iterable[tuple[K, str]]) -> list[tuple[K, str]]:
    """Return the formats of the texts that have macros."""
    return [(key, percent_format(text)) for key, text in texts if is_template(text)]
