"""Substitution of macros in a role that has many replicas."""

from __future__ import annotations

import copy

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
        role.metadata = substitute_nested(role.metadata, values.to_dict())
        return role
