"""Substitution of macros in a role that has many replicas."""

from __future__ import annotations

import copy
from typing import Any

from torchx_specs.model.app import Role
from torchx_specs.model.templates import is_template, macros, substitute, substitute_nested


class RoleTemplate:
    """A role that is searched for macros once, and rendered for thousands of replicas.

    Callers may change the lists and dicts that :meth:`args`, :meth:`env` and :meth:`render` return.
    """

    def __init__(self, role: Role) -> None:
        self.role = role
        self._args = list(role.args)
        self._env = dict(role.env)
        self._arg_macros = [i for i, arg in enumerate(self._args) if is_template(arg)]
        self._env_macros = [key for key, value in self._env.items() if is_template(value)]
        self._metadata_macros = _has_macro(role.metadata)

    @property
    def constant(self) -> bool:
        """True if all replicas have the same arguments, environment and metadata."""
        return not (self._arg_macros or self._env_macros or self._metadata_macros)

    def args(self, values: macros.Values) -> list[str]:
        """Return the arguments of one replica."""
        args = self._args.copy()
        by_name = values.to_dict() if self._arg_macros else {}
        for i in self._arg_macros:
            args[i] = substitute(args[i], by_name)
        return args

    def env(self, values: macros.Values) -> dict[str, str]:
        """Return the environment of one replica."""
        env = self._env.copy()
        by_name = values.to_dict() if self._env_macros else {}
        for key in self._env_macros:
            env[key] = substitute(env[key], by_name)
        return env

    def render(self, values: macros.Values) -> Role:
        """Return the role of one replica, with its own arguments, environment and metadata.

        The values of all other fields are shared with the template's role.
        """
        role = copy.copy(self.role)
        role.args = self.args(values)
        role.env = self.env(values)
        if self._metadata_macros:
            role.metadata = substitute_nested(role.metadata, values.to_dict())
        else:
            role.metadata = dict(role.metadata)
        return role


def _has_macro(value: Any) -> bool:
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, dict):
        return any(_has_macro(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_macro(item) for item in value)
    return False
