"""The options of a scheduler: names, types, defaults and help, and the parsing of their values."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union, get_args, get_origin

from torchx_specs.cases import camel_to_snake, snake_to_camel
from torchx_specs.errors import InvalidRunConfigException, nearest
from torchx_specs.redaction import masked_value
from torchx_specs.text_values import parse_bool, split_list, split_pairs

CfgVal = str | int | float | bool | list[str] | dict[str, str] | None


def _type_name(tp: Any, full: bool = False) -> str:
    """Return the name of a type; ``full`` includes the types of items."""
    origin = get_origin(tp)
    if origin is Union or isinstance(tp, types.UnionType):
        names = (_type_name(arg, full) for arg in get_args(tp) if arg is not type(None))
        return " | ".join(names)
    if full and origin is not None:
        return f"{origin.__name__}[{', '.join(map(_type_name, get_args(tp)))}]"
    return str(getattr(origin or tp, "__name__", tp))


class runopt:  # noqa: N801 - a documented name
    """One option of a scheduler.

    Args:
        default: Value if the option is not given.
        opt_type: ``str``, ``int``, ``float``, ``bool``, ``list[str]`` or ``dict[str, str]``.
        is_required: Whether the option must be given.
        help: Description, or a function that returns it when it is first read.
    """

    __slots__ = ("_help", "default", "is_required", "opt_type")

    def __init__(
        self,
        default: CfgVal,
        opt_type: Any,
        is_required: bool,
        help: str | Callable[[], str],
    ) -> None:
        self.default = default
        self.opt_type = opt_type
        self.is_required = is_required
        self._help = help

    @property
    def help(self) -> str:
        """The description of the option."""
        if not isinstance(self._help, str):
            self._help = self._help()
        return self._help

    def cast_to_type(self, value: str) -> CfgVal:
        """Convert text to the type of this option.

        The rules of :mod:`torchx_specs.text_values` apply. Lists are ``a,b`` or ``a;b``. Dicts are
        ``a:1,b:2`` or ``a:1;b:2``, because ``=`` already separates an option from its value. Empty
        list items are dropped.

        Raises:
            ValueError: The text is not a value of the option's type.
        """
        kind = get_origin(self.opt_type) or self.opt_type
        if kind is list:
            return [item for item in split_list(value, ",;") if item]
        if kind is dict:
            return dict(split_pairs(value.rstrip(" ,;"), equals=":"))
        if kind is bool:
            return parse_bool(value)
        if kind not in (int, float):
            return value
        try:
            number: int | float = kind(value)
        except ValueError:
            raise ValueError(f"`{value}` is not a valid {kind.__name__}") from None
        return number

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, runopt):
            return NotImplemented
        mine = (self.default, self.opt_type, self.is_required, self.help)
        return mine == (other.default, other.opt_type, other.is_required, other.help)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"runopt(default={self.default!r}, opt_type={self.opt_type!r},"
            f" is_required={self.is_required!r}, help={self.help!r})"
        )


class runopts:  # noqa: N801 - a documented name
    """Options of a scheduler: accepted keys, types, defaults and help.

    >>> opts = runopts()
    >>> opts.add("cluster_id", type_=int, help="cluster to submit the job", required=True)
    >>> opts.add("priority", type_=float, default=0.5, help="job priority")
    >>> opts.add("preemptible", type_=bool, default=False, help="is the job preemptible")
    >>> opts.resolve({"clusterId": 7})
    {'cluster_id': 7, 'priority': 0.5, 'preemptible': False}

    Prefer :class:`~torchx_specs.StructuredOpts` for new schedulers.
    """

    def __init__(self) -> None:
        self._opts: dict[str, runopt] = {}

    def __iter__(self) -> Iterator[tuple[str, runopt]]:
        return iter(self._opts.items())

    def __len__(self) -> int:
        return len(self._opts)

    def add(
        self,
        cfg_key: str,
        type_: Any,
        help: str | Callable[[], str],
        default: CfgVal = None,
        required: bool = False,
    ) -> None:
        """Add an option.

        Args:
            cfg_key: Name of the option.
            type_: ``str``, ``int``, ``float``, ``bool``, ``list[str]`` or ``dict[str, str]``.
            help: Description, or a function that returns it when it is first read.
            default: Value if the option is not given.
            required: Whether the option must be given.

        Raises:
            ValueError: A required option has a default.
            TypeError: The default does not have the type ``type_``.
        """
        if required and default is not None:
            raise ValueError(
                f"Required option: {cfg_key} must not specify default value. Given: {default}"
            )
        if default is not None and not self.is_type(default, type_):
            raise TypeError(
                f"Option: {cfg_key}, must be of type: {type_}."
                f" Given: {default} ({type(default).__name__})"
            )
        self._opts[cfg_key] = runopt(default, type_, required, help)

    def update(self, other: runopts) -> None:
        """Add the options of ``other``; an added option replaces one of the same name."""
        self._opts.update(other._opts)

    def __or__(self, other: object) -> runopts:
        if not isinstance(other, runopts):
            return NotImplemented
        merged = runopts()
        merged.update(self)
        merged.update(other)
        return merged

    def get(self, name: str) -> runopt | None:
        """Return the option named ``name``, in ``snake_case`` or ``camelCase``, or None."""
        key = self.canonical_key(name)
        return None if key is None else self._opts[key]

    def canonical_key(self, name: str) -> str | None:
        """Return the declared name of the option ``name``, in snake_case or camelCase, or None."""
        if name in self._opts:
            return name
        if (camel := snake_to_camel(name)) in self._opts:
            return camel
        # `efsID` means `efs_id`, although snake_to_camel() returns `efsId`
        snake = camel_to_snake(name).replace("-", "_")
        return next((key for key in self._opts if camel_to_snake(key) == snake), None)

    @staticmethod
    def is_type(obj: CfgVal, tp: Any) -> bool:
        """Return True if ``obj`` is of type ``tp``: a class, generic or union; int fits float."""
        origin = get_origin(tp)
        if origin is Union or isinstance(tp, types.UnionType):
            return any(runopts.is_type(obj, arg) for arg in get_args(tp))
        if tp is type(None) or tp is None:
            return obj is None
        if origin is list:
            return isinstance(obj, list) and all(isinstance(item, str) for item in obj)
        if origin is dict:
            return isinstance(obj, dict) and all(
                isinstance(k, str) and isinstance(v, str) for k, v in obj.items()
            )
        if tp is float and isinstance(obj, int) and not isinstance(obj, bool):
            return True
        return isinstance(obj, tp)

    def resolve(self, cfg: Mapping[str, CfgVal], ignore_unknown: bool = False) -> dict[str, CfgVal]:
        """Return a copy of ``cfg``, checked against the options and completed with defaults.

        Keys may be ``camelCase``. A value None is kept, and not replaced by the default.

        Args:
            cfg: The given options.
            ignore_unknown: Keep unknown options instead of refusing them.

        Raises:
            InvalidRunConfigException: An option is unknown, missing or of the wrong type, or is
                given in two spellings with different values.
        """
        for problem in self.problems(cfg, ignore_unknown):
            raise problem
        resolved = {self.canonical_key(name) or name: value for name, value in cfg.items()}
        for key, opt in self._opts.items():
            resolved.setdefault(key, opt.default)
        return resolved

    def problems(
        self, cfg: Mapping[str, CfgVal], ignore_unknown: bool = False
    ) -> Iterator[InvalidRunConfigException]:
        """Yield all problems of given options; :meth:`resolve` raises the first one.

        Args:
            cfg: The given options.
            ignore_unknown: Whether unknown options are no problem.
        """
        rest = dict(cfg)
        given: dict[str, CfgVal] = {}
        for name, value in cfg.items():
            key = self.canonical_key(name)
            if key is not None:
                if given.setdefault(key, value) != value:
                    yield _given_twice(key, given[key], value, cfg)
            elif not ignore_unknown:
                yield self._unknown(name, rest)
                del rest[name]
        for key, opt in self._opts.items():
            value = given.get(key)
            if value is None:
                if opt.is_required:
                    reason = f"Required run option: {key}, must be provided and not `None`"
                    yield InvalidRunConfigException(reason, key, rest)
            elif not self.is_type(value, opt.opt_type):
                yield InvalidRunConfigException(
                    f"Run option: {key}, must be of type: {_type_name(opt.opt_type, full=True)},"
                    f" but was: {masked_value(key, value)} ({type(value).__name__})",
                    key,
                    rest,
                )

    def cfg_from_str(self, cfg_str: str, ignore_unknown: bool = True) -> dict[str, CfgVal]:
        """Parse ``k1=v1,k2=v2`` (or with ``;``) and cast the values to the options' types.

        A value may contain ``,`` or ``;``: only the last separator before the next ``key=`` ends
        the value. A text that is neither an identifier nor an option is no key, so it belongs to
        the value: ``srun=--mpi=pmix;--cpu-bind=cores`` has two items. Call :meth:`resolve` on the
        result to add defaults and check for required options.

        Args:
            cfg_str: The options.
            ignore_unknown: Drop unknown options with a warning instead of refusing them.

        Raises:
            InvalidRunConfigException: The text is malformed, a value is of the wrong type, or an
                option is given twice, or is unknown and ``ignore_unknown`` is False.
        """
        try:
            pairs = split_pairs(
                cfg_str, is_key=lambda key: key.isidentifier() or bool(self.canonical_key(key))
            )
        except ValueError as e:
            raise InvalidRunConfigException(str(e), cfg_str.partition("=")[0].strip(), {}) from None
        given: dict[str, str] = {}
        previous = ""
        for key, value in pairs:
            if given.setdefault(key, value) != value:
                raise InvalidRunConfigException(f"Run option: {key} is given twice", key, given)
            if self.canonical_key(key):
                previous = key
            elif not ignore_unknown and previous:
                hint = f". If it belongs to the value of `{previous}`, quote it: {previous}='…'"
                raise self._unknown(key, dict(pairs), hint)
            elif ignore_unknown:
                import logging

                logging.getLogger(__name__).warning(
                    "unknown run option `%s` dropped;%s valid options: %s",
                    key,
                    nearest(key, self._opts),
                    self._names(),
                )
        return self._canonical(
            given, ignore_unknown, lambda key, value: self._opts[key].cast_to_type(value)
        )

    def cfg_from_json_repr(self, json_repr: str, ignore_unknown: bool = False) -> dict[str, CfgVal]:
        """Return the options in a JSON object; items of lists and dicts become strings.

        Args:
            json_repr: The JSON object.
            ignore_unknown: Drop unknown options instead of refusing them.

        Raises:
            InvalidRunConfigException: The text is not a JSON object, or an option is given in two
                spellings, or is unknown and ``ignore_unknown`` is False.
        """
        import json

        try:
            data = json.loads(json_repr)
        except ValueError as e:
            raise InvalidRunConfigException(f"options are not valid JSON: {e}", "", {}) from None
        if not isinstance(data, dict):
            raise InvalidRunConfigException("options must be a JSON object", "", {})
        return self._canonical(data, ignore_unknown, lambda _, value: _with_text_items(value))

    def check_known(self, cfg: Mapping[str, CfgVal]) -> None:
        """Raise an InvalidRunConfigException if ``cfg`` has a key that is not an option."""
        for name in cfg:
            if self.canonical_key(name) is None:
                raise self._unknown(name, cfg)

    def _canonical(
        self,
        given: Mapping[str, Any],
        drop_unknown: bool,
        convert: Callable[[str, Any], CfgVal],
    ) -> dict[str, CfgVal]:
        """Return the given options with registered keys and converted values."""
        canonical: dict[str, CfgVal] = {}
        for name, value in given.items():
            key = self.canonical_key(name)
            if key is None and drop_unknown:
                continue
            if key is None:
                raise self._unknown(name, given)
            try:
                converted = convert(key, value)
            except ValueError as e:
                reason = str(e).replace(str(value), str(masked_value(key, value)))
                reason = f"Run option: {key}: {reason}"
                raise InvalidRunConfigException(reason, key, given) from None
            if canonical.setdefault(key, converted) != converted:
                raise _given_twice(key, canonical[key], converted, given)
        return canonical

    def _unknown(
        self, name: str, cfg: Mapping[str, Any], hint: str = ""
    ) -> InvalidRunConfigException:
        """Return the error for the unknown options in ``cfg``, of which ``name`` is the first."""
        others = [key for key in cfg if key != name and self.canonical_key(key) is None]
        also = f" Also unknown: {', '.join(f'`{key}`' for key in others)}." if others else ""
        return InvalidRunConfigException(
            f"Unknown run option `{name}`.{nearest(name, self._opts)}{also}"
            f" Valid options are: {self._names()}{hint}",
            name,
            cfg,
        )

    def _names(self) -> str:
        return ", ".join(sorted(self._opts)) or "(none declared)"

    def __repr__(self) -> str:
        required = [(k, o) for k, o in self._opts.items() if o.is_required]
        optional = [(k, o) for k, o in self._opts.items() if not o.is_required]
        usage = [f"{k}={k.upper()}" for k, _ in required]
        usage += [f"[{k}={k.upper()}]" for k, _ in optional]
        out = f"    usage:\n        {','.join(usage)}"
        for title, opts in (("required", required), ("optional", optional)):
            if opts:
                out += f"\n\n    {title} arguments:"
            for key, opt in opts:
                default = "" if opt.is_required else f", {opt.default}"
                out += f"\n        {key}={key.upper()} ({_type_name(opt.opt_type)}{default})"
                out += "".join(f"\n            {line}" for line in opt.help.splitlines() or [""])
        return out


def _given_twice(
    key: str, first: CfgVal, second: CfgVal, given: Mapping[str, Any]
) -> InvalidRunConfigException:
    first, second = masked_value(key, first), masked_value(key, second)
    reason = f"Run option: {key} is given twice, as {first!r} and as {second!r}"
    return InvalidRunConfigException(reason, key, given)


def _with_text_items(value: Any) -> CfgVal:
    if isinstance(value, list):
        return [str(item) for item in value]
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else value
