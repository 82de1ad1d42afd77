"""Completes the names of components, and the options of a component."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete

from torchx_cli.completion.values import LAST_WORD, complete_files
from torchx_runner.components.groups import component_groups, name_prefix
from torchx_specs.components.source import (
    ComponentSource,
    module_file,
    module_spec,
    read_source,
)

if TYPE_CHECKING:
    from torchx_specs.components.signature import ComponentParameter, ComponentSignature


def complete_components(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> Iterator[CompletionItem]:
    """Yield components or, after the name of a component, its options, their values and files."""
    given: Any = ctx.params.get(param.name or "") or ()
    if given:
        if given[0].endswith(".py") and ":" not in given[0]:
            yield CompletionItem(incomplete, type="file")  # arguments of a script
        else:
            yield from _arguments(given[0], given[1:], ctx.meta.get(LAST_WORD, incomplete))
        return
    path, colon, function = incomplete.rpartition(":")
    if colon:
        found = _source(path)
        for name in found.components() if found else ():
            if name.startswith(function):
                yield CompletionItem(f"{path}:{name}")
        return
    if incomplete.endswith(".py") and os.path.isfile(incomplete):
        components = read_source(incomplete).components()
        yield from (CompletionItem(f"{incomplete}:{name}") for name in components)
        if not components:  # a script
            yield CompletionItem(incomplete)
        return
    for name in sorted(_registered(incomplete)):
        yield CompletionItem(name)
    yield CompletionItem(incomplete, type="open")


def _source(path: str) -> ComponentSource | None:
    """Return the source of a file or a module; None if it is not found."""
    file = path if os.path.isfile(path) else module_file(path)
    return None if file is None else read_source(file)


def _registered(incomplete: str) -> set[str]:
    """Return the names of registered components that begin with a text."""
    found = set()
    for group in component_groups():
        for start, file in _module_files(group.module, name_prefix(group.group)):
            matches = incomplete.startswith(f"{start}.") or f"{start}.".startswith(incomplete)
            if start and not matches:
                continue  # no name of this module matches, so its file is not read
            with suppress(OSError, SyntaxError, ValueError):
                names = read_source(file).components()
                found |= {".".join(filter(None, (start, name))) for name in names}
    return {name for name in found if name.startswith(incomplete)}


def _module_files(name: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the file of a module and of all modules below it.

    Args:
        name: The module.
        prefix: The name that the module gets in the result.
    """
    spec = module_spec(name)
    if spec is None:
        return
    if spec.origin and spec.origin.endswith(".py"):
        yield prefix, spec.origin
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*.py")):
            *packages, module = path.relative_to(folder).with_suffix("").parts
            below = packages if module == "__init__" else [*packages, module]
            inits = (Path(folder, *packages[:n], "__init__.py") for n in range(len(packages) + 1))
            if below and module != "__main__" and all(init.is_file() for init in inits):
                yield ".".join(filter(None, (prefix, *below))), str(path)


def _signature(component: str) -> ComponentSignature | None:
    """Return the signature of a component; None if its source is not found."""
    path, colon, function = component.rpartition(":")
    if colon:
        named = _source(path)
        return None if named is None else named.signature(function)
    for group in component_groups():
        prefix = name_prefix(group.group)
        if prefix and not component.startswith(f"{prefix}."):
            continue
        relative = component[len(prefix) + 1 :] if prefix else component
        *modules, function = relative.split(".")
        file = module_file(".".join((group.module, *modules)))
        if file is not None:
            found = read_source(file)
            if function in found.components():
                return found.signature(function)
    return None


def _arguments(component: str, given: Sequence[str], incomplete: str) -> list[CompletionItem[str]]:
    """Return the words that may follow the name of a component.

    Args:
        component: The component.
        given: The arguments before the last word.
        incomplete: The last word.
    """
    known = _signature(component)
    typed = incomplete.partition("=")[0]
    params: list[click.Parameter] = [_option(p, typed) for p in known.parameters] if known else []
    if known is None or known.varargs is not None:
        params.append(click.Argument(["arguments"], nargs=-1, shell_complete=complete_files))
    settings = {"allow_interspersed_args": False}
    command = click.Command(component, params=params, context_settings=settings)
    return ShellComplete(command, {}, component, "").get_completions([*given], incomplete)


def _option(parameter: ComponentParameter, typed: str) -> click.Option:
    """Return the option of a parameter; ``--flag=``, if it is typed, needs a value."""
    *others, last = parameter.options
    is_flag = parameter.is_flag and typed not in parameter.options
    if is_flag:
        last = "/".join((last, *parameter.negations))
    return click.Option(
        [parameter.name, *others, last],
        is_flag=is_flag,
        multiple=parameter.converter is not None and parameter.converter.is_repeatable,
        shell_complete=partial(_values, parameter),
    )


def _values(
    parameter: ComponentParameter, ctx: click.Context, option: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    converter = parameter.converter
    if converter is None:  # the command line accepts no value
        return []
    choices = ("true", "false") if converter.is_flag else converter.choices
    is_resource = parameter.name == "h" and not choices
    if is_resource:
        from torchx_specs.resources.registry import named_resources

        choices = tuple(named_resources)
    before, comma, last = ("", "", incomplete)
    if not converter.is_scalar:
        before, comma, last = incomplete.rpartition(",")
    found = [CompletionItem(f"{before}{comma}{c}") for c in choices if c.startswith(last)]
    if converter.takes_text and not is_resource:
        found.append(CompletionItem(incomplete, type="file"))
    return found
