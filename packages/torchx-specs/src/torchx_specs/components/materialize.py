"""Call a component with arguments from a command line, a configuration file, or both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_specs.components.parser import parse_arguments
from torchx_specs.components.signature import ComponentSignature, component_name, read_signature
from torchx_specs.errors import ComponentArgumentError, ComponentTypeError, nearest

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef


class ComponentArgs(NamedTuple):
    """Arguments of a component, ready for the call.

    Attributes:
        positional_args: Values of the parameters before ``*args``, by name, in their order.
        var_args: Values for ``*args``.
        kwargs: Keyword-only arguments.
    """

    positional_args: dict[str, Any]
    var_args: list[Any]
    kwargs: dict[str, Any]


def materialize_appdef(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> AppDef:
    """Call a component and return its AppDef.

    >>> from torchx_specs import AppDef, Role
    >>> def echo(msg: str = "hi", *, num_replicas: int = 1) -> AppDef:
    ...     role = Role("echo", image="/tmp", entrypoint="echo", args=[msg])
    ...     role.num_replicas = num_replicas
    ...     return AppDef("echo", roles=[role])
    >>> materialize_appdef(echo, ["--num_replicas", "2"], {"msg": "hello"}).roles[0].num_replicas
    2

    ``cmpnt_args`` win over ``config``, ``config`` over ``cmpnt_defaults``, and ``cmpnt_defaults``
    over the defaults in the signature. An exception that the component raises is passed on
    unchanged.

    Args:
        cmpnt_fn: The component: a function, or a class. A class is called with the arguments, and
            the method ``build()`` of the instance returns the AppDef.
        cmpnt_args: Arguments from a command line, such as ``["--msg", "hello"]``.
        cmpnt_defaults: Maps names of parameters to values as text, from a configuration file.
        config: Maps names of parameters to typed values, from JSON.

    Raises:
        ComponentArgumentError: Arguments are unknown, missing or of the wrong type.
        ComponentTypeError: The component's signature is not supported, or the component did not
            return an AppDef.
        ComponentHelpRequested: ``--help`` was among the arguments.
    """
    from torchx_specs.model.app import AppDef

    args = component_args_from_str(cmpnt_fn, cmpnt_args, cmpnt_defaults, config)
    app = _call(cmpnt_fn, args)
    if isinstance(app, AppDef):
        return app
    called = component_name(cmpnt_fn) + (".build()" if inspect.isclass(cmpnt_fn) else "")
    if inspect.iscoroutine(app):
        app.close()  # otherwise Python warns that the coroutine was never awaited
        raise ComponentTypeError(f"{called} is async; a component must be a plain function")
    kind = (
        "None (is a return missing?)" if app is None else f"an object of type {type(app).__name__}"
    )
    raise ComponentTypeError(f"{called} must return an AppDef, but it returned {kind}")


def _call(component: Callable[..., Any], args: ComponentArgs) -> Any:
    """Call a component; record the component's file and line on an exception."""
    try:
        result = component(*args.positional_args.values(), *args.var_args, **args.kwargs)
        return result.build() if inspect.isclass(component) else result
    except Exception as e:
        try:
            e._torchx_component_location = _location(component, e)  # type: ignore[attr-defined]
        except AttributeError:
            pass  # an exception class that is a frozen dataclass accepts no new attributes
        raise


def _location(component: Callable[..., Any], error: BaseException) -> str | None:
    import traceback

    try:
        file = inspect.getfile(inspect.unwrap(component))
    except TypeError:  # the component has no source file, for example a builtin
        file = ""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    below = frames[1:]  # without the frame of _call
    found = next((frame for frame in below if frame[0] == file), below[0] if below else None)
    return f"{found[0]}:{found[1]}" if found else None


def component_error_location(error: BaseException) -> str | None:
    """Return ``file:line`` of the component's code that raised an exception.

    The location is that of the outermost frame in the component's file or, without such a frame, of
    the first frame inside the call. The result is None if the exception was raised outside a call
    of a component by :func:`materialize_appdef`.
    """
    return getattr(error, "_torchx_component_location", None)


def component_args_from_str(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_args_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> ComponentArgs:
    """Return the arguments for a component; see :func:`materialize_appdef`."""
    signature = read_signature(cmpnt_fn)
    _check_arguments(signature.name, cmpnt_args)
    values, varargs = parse_arguments(
        signature, cmpnt_args, _known(signature, config), _known(signature, cmpnt_args_defaults)
    )
    positional = {p.name: values[p.name] for p in signature.parameters if not p.keyword_only}
    keyword_only = {p.name: values[p.name] for p in signature.parameters if p.keyword_only}
    return ComponentArgs(positional, varargs, keyword_only)


def _check_arguments(name: str, arguments: object) -> None:
    if isinstance(arguments, str) or not isinstance(arguments, Sequence):
        hint = "; split a line with shlex.split()" if isinstance(arguments, str) else ""
        raise ComponentArgumentError(
            f"{name}: the arguments must be a list of str, got {arguments!r:.100}{hint}"
        )
    for i, argument in enumerate(arguments):
        if not isinstance(argument, str):
            problem = f"must be a str, got {argument!r:.100} (config accepts typed values)"
            raise ComponentArgumentError(f"{name}: arguments[{i}] {problem}")


def _known(signature: ComponentSignature, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values that belong to parameters; log a warning for every other name."""
    known: dict[str, Any] = {}
    for key, value in (given or {}).items():
        name = key.replace("-", "_")
        if name in signature.names:
            known[name] = value
        else:
            # An unknown name is not an error: several components may share a configuration.
            import logging

            hint = nearest(key, signature.names)
            line = f"{signature.name} has no parameter '{key}';{hint}".rstrip(";")
            logging.getLogger(__name__).warning("%s (ignored)", line)
    return known
