"""Scheduler options as a dataclass."""

from __future__ import annotations

import functools
import types
from abc import ABCMeta
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from torchx_specs.cases import camel_to_snake, snake_to_camel
from torchx_specs.errors import InvalidRunConfigException
from torchx_specs.options.run_options import CfgVal, runopts

if TYPE_CHECKING:
    from typing_extensions import Self

_EXTRA = "_extra_cfg"
# Options of workspaces. Programs for older TorchX releases pass them as options of the scheduler.
_WORKSPACE_OPTIONS = {"image_repo"}


class _OptsType(ABCMeta):
    """The metaclass of options: a class can be called with one mapping, as a TypedDict can."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Mapping) and not _begins_with_mapping(cls):
            cfg = {**args[0], **kwargs}
            own = {key: value for key, value in cfg.items() if key not in _WORKSPACE_OPTIONS}
            cls.as_runopts().check_known(own)  # type: ignore[attr-defined]
            return cls.from_cfg(cfg)  # type: ignore[attr-defined]
        return super().__call__(*args, **kwargs)


class StructuredOpts(Mapping[str, CfgVal], metaclass=_OptsType):
    """Base class for typed scheduler options; a subclass is a dataclass with a field per option.

    - :meth:`as_runopts` returns the fields as :class:`~torchx_specs.runopts`.
    - :meth:`from_cfg` makes an instance from a dict with keys in ``snake_case`` or ``camelCase``.
    - The string after a field is the help text of the option.
    - A field of another StructuredOpts class is a group: its options have dotted names
      (``k8s.context``).
    - ``field(metadata={"cfg_key": "..."})`` gives the option another name than the field.
    - Fields whose names begin with ``_`` are not options.
    - A single mapping as the argument, as in ``MyOpts({"cluster_name": "a"})``, sets the options
      that its keys name. Unknown keys are an error.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class MyOpts(StructuredOpts):
    ...     cluster_name: str
    ...     '''Name of the cluster to submit to.'''
    ...
    ...     num_retries: int = 3
    ...     '''Number of retry attempts.'''
    >>> opts = MyOpts.from_cfg({"clusterName": "a"})
    >>> opts.cluster_name, opts["num_retries"]
    ('a', 3)
    """

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, CfgVal]) -> Self:
        """Return an instance with the values of ``cfg``.

        Keys of ``cfg`` that are not options are kept; ``opts[key]`` returns their values.

        Raises:
            InvalidRunConfigException: An option is given in two spellings with different values.
            TypeError: An option without a default is missing.
        """
        used: set[str] = set()
        self = cls(**cls._kwargs_from(cfg, "", used))
        extra = {key: value for key, value in cfg.items() if key not in used}
        if extra:
            object.__setattr__(self, _EXTRA, extra)
        return self

    @classmethod
    def _kwargs_from(cls, cfg: Mapping[str, CfgVal], prefix: str, used: set[str]) -> dict[str, Any]:
        kwargs: dict[str, Any] = {}
        for f, _, names, group, is_required in _options(cls):
            spellings = [prefix + name for name in names]
            if group is None:
                given = [s for s in spellings if s in cfg]
                used.update(given)
                differing = [s for s in given if cfg[s] != cfg[given[0]]]
                if differing:
                    raise InvalidRunConfigException(
                        f"Run option `{given[0]}` is given in two spellings with different values"
                        f" (also as `{differing[0]}`)",
                        given[0],
                        cfg,
                    )
                if given and (cfg[given[0]] is not None or not _needs_factory(cls, f)):
                    kwargs[f.name] = cfg[given[0]]
                continue
            values: dict[str, Any] = {}
            for spelling in spellings:
                values = {**group._kwargs_from(cfg, f"{spelling}.", used), **values}
            defaults = {o.field.name: o.field.default for o in _options(group)}
            if is_required or any(v not in (None, defaults[k]) for k, v in values.items()):
                unset = {o.field.name for o in _options(group) if o.is_required}
                kwargs[f.name] = group(
                    **{k: v for k, v in values.items() if v is not None or k not in unset}
                )
        return kwargs

    @classmethod
    def _add_options(cls, opts: runopts, prefix: str, required: bool) -> None:
        """Add the options to ``opts``; in an optional group, no option is required."""
        for f, key, _, group, is_required in _options(cls):
            if group is not None:
                group._add_options(opts, f"{prefix}{key}.", required and is_required)
                continue
            opts.add(
                prefix + key,
                type_=_unwrap_optional(_hints(cls)[f.name]),
                help=partial(_help_of, cls, f.name),
                default=f.default if f.default is not MISSING else None,
                required=required and is_required,
            )

    @classmethod
    def as_runopts(cls) -> runopts:
        """Return the options as :class:`~torchx_specs.runopts`."""
        opts = runopts()
        cls._add_options(opts, "", True)
        return opts

    @classmethod
    def get_docstrings(cls) -> dict[str, str]:
        """Return a dict from the name of each field to the string after the field.

        The fields of a group have dotted names, after the name of the group.
        """
        docs = dict(_docstrings(cls))
        for option in _options(cls):
            if option.group is not None:
                nested = option.group.get_docstrings()
                docs.update({f"{option.field.name}.{name}": nested[name] for name in nested})
        return docs

    def __getitem__(self, key: str) -> CfgVal:
        head, dot, rest = str(key).partition(".")
        for option in _options(type(self)):
            value: Any = getattr(self, option.field.name)
            if key in option.spellings:
                return value  # type: ignore[no-any-return]
            if dot and head in option.spellings and isinstance(value, StructuredOpts):
                return value[rest]
        extra: Mapping[str, CfgVal] = self.__dict__.get(_EXTRA, {})
        return extra[key]

    def __iter__(self) -> Iterator[str]:
        for option in _options(type(self)):
            value = getattr(self, option.field.name)
            if isinstance(value, StructuredOpts):
                yield from (f"{option.key}.{inner}" for inner in value)
            elif value is not None or option.group is None:
                yield option.key
        yield from self.__dict__.get(_EXTRA, ())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __or__(self, other: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        return {**other, **self}


def is_structured_opts(tp: object) -> bool:
    """Return True for a dataclass that derives from :class:`StructuredOpts`."""
    if get_origin(tp) is not None:  # in Python 3.10, Mapping[str, int] is an instance of type
        return False
    return isinstance(tp, type) and issubclass(tp, StructuredOpts) and is_dataclass(tp)


class _Option(NamedTuple):
    field: Field[Any]
    key: str
    spellings: list[str]
    group: type[StructuredOpts] | None
    is_required: bool


@functools.cache
def _options(cls: type) -> list[_Option]:
    found = []
    for f in fields(cls):
        if f.name.startswith("_"):
            continue
        key = str(f.metadata.get("cfg_key", f.name))
        spellings = [key, f.name, camel_to_snake(f.name), snake_to_camel(f.name)]
        spellings.append(f.name.replace("_", "-"))  # `mail-user` in TorchX 0.7
        is_required = f.default is MISSING and f.default_factory is MISSING
        unique = list(dict.fromkeys(spellings))
        found.append(_Option(f, key, unique, _group_type(cls, f), is_required))
    return found


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _unwrap_optional(tp: Any) -> Any:
    if get_origin(tp) is Union or isinstance(tp, types.UnionType):
        inner = [arg for arg in get_args(tp) if arg is not type(None)]
        if len(inner) == 1:
            return inner[0]
    return tp


_PLAIN_ANNOTATIONS = frozenset(
    base + suffix
    for base in ("str", "int", "float", "bool", "list[str]", "dict[str, str]")
    for suffix in ("", " | None")
)


def _group_type(cls: type, f: Field[Any]) -> type[StructuredOpts] | None:
    if isinstance(f.type, str) and f.type in _PLAIN_ANNOTATIONS:
        return None  # avoids evaluating annotations, which would slow down every start
    tp = _unwrap_optional(_hints(cls)[f.name])
    return tp if is_structured_opts(tp) else None


def _begins_with_mapping(cls: type) -> bool:
    """Return True if the first option of a class is a dict or a group."""
    if not is_dataclass(cls) or not _options(cls):
        return False
    tp = _unwrap_optional(_hints(cls)[_options(cls)[0].field.name])
    tp = get_origin(tp) or tp
    return not isinstance(tp, type) or issubclass(tp, Mapping)


def _needs_factory(cls: type, f: Field[Any]) -> bool:
    """Return True if the default factory must replace a None that was given for the option."""
    return f.default_factory is not MISSING and type(None) not in get_args(_hints(cls)[f.name])


def _help_of(cls: type, field_name: str) -> str:
    return _docstrings(cls).get(field_name, field_name)


@functools.cache
def _docstrings(cls: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base is not StructuredOpts and issubclass(base, StructuredOpts):
            docs.update(_own_docstrings(base))
    return docs


def _own_docstrings(cls: type) -> dict[str, str]:
    """Return the docstrings of a class's own fields; empty if the source is not available."""
    import ast
    import inspect
    import itertools
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = next((node.body for node in tree.body if isinstance(node, ast.ClassDef)), [])
    docs: dict[str, str] = {}
    for pair in itertools.pairwise(body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = inspect.cleandoc(text)
    return docs
