"""Completes the names of components, and the options of a component."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from torchx_cli.completion.values import LAST_WORD
from torchx_runner.components.groups import component_groups, name_prefix
from torchx_specs.components.source import (
    ComponentSource,
    module_file,
    module_spec,
    read_source,
)

if TYPE_CHECKING:
    import click

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
        prefix = name_prefix(group.group)
        for module, file in _module_files(group.module):
            below = module.removeprefix(group.module).lstrip(".")
            start = ".".join(filter(None, (prefix, below)))
            matches = incomplete.startswith(f"{start}.") or f"{start}.".startswith(incomplete)
            if start and not matches:
                continue  # no name of this module matches, so its file is not read
            try:
                names = read_source(file).components()
                found |= {".".join(filter(None, (start, name))) for name in names}
            except (OSError, SyntaxError, ValueError):
                continue
    return {name for name in found if name.startswith(incomplete)}


def _module_files(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the file of a module and of all modules below it."""
    spec = module_spec(name)
    if spec is None:
        return
    if spec.origin and spec.origin.endswith(".py"):
        yield name, spec.origin
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*.py")):
            *packages, module = path.relative_to(folder).with_suffix("").parts
            below = packages if module == "__init__" else [*packages, module]
            inits = (Path(folder, *packages[:n], "__init__.py") for n in range(len(packages) + 1))
            if below and module != "__main__" and all(init.is_file() for init in inits):
                yield ".".join((name, *below)), str(path)


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


def _arguments(component: str, given: tuple[str, ...], incomplete: str) -> Iterator[CompletionItem]:
    """Yield the words that may follow the name of a component.

    Args:
        component: The component.
        given: The arguments before the last word.
        incomplete: The last word.
    """
    known = _signature(component)
    parameters = known.parameters if known else ()
    by_option = {_key(option): p for p in parameters for option in p.options}
    has_varargs = known is not None and known.varargs is not None
    used: set[str] = set()
    pending: ComponentParameter | None = None
    for word in given:
        if pending is not None:
            pending = None
            continue
        if word == "--" or not word.startswith("-"):
            yield CompletionItem(incomplete, type="file")  # arguments of the component's program
            return
        name, equals, _ = word.partition("=")
        found = by_option.get(_key(name)) or by_option.get(_key(name.replace("--no-", "--", 1)))
        if found is not None:
            used.add(found.name)
            pending = None if equals or found.is_flag else found
    if pending is not None:
        yield from _values(pending, incomplete)
        return
    name, equals, value = incomplete.partition("=")
    if equals and _key(name) in by_option:
        yield from _values(by_option[_key(name)], value)
        return
    if incomplete.startswith("-") or not has_varargs:
        for parameter in parameters:
            repeats = parameter.converter is not None and parameter.converter.is_repeatable
            if parameter.name not in used or repeats:
                for option in (*parameter.options, *parameter.negations):
                    if _key(option).startswith(_key(incomplete)):
                        yield CompletionItem(option)
        if not given and "--help".startswith(incomplete):
            yield CompletionItem("--help")
    if not incomplete.startswith("-") and (has_varargs or known is None):
        yield CompletionItem(incomplete, type="file")


def _values(parameter: ComponentParameter, incomplete: str) -> Iterator[CompletionItem]:
    converter = parameter.converter
    if converter is None:  # the command line accepts no value
        return
    choices = ("true", "false") if converter.is_flag else converter.choices
    is_list = not converter.is_scalar
    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    for choice in choices:
        if choice.startswith(last):
            yield CompletionItem(f"{before}{comma}{choice}")
    if parameter.name == "h" and not choices:
        from torchx_specs.resources.registry import named_resources

        names = [name for name in named_resources if name.startswith(incomplete)]
        for name in names:
            yield CompletionItem(name)
    elif converter.takes_text:
        yield CompletionItem(incomplete, type="file")


def _key(option: str) -> str:
    return option.replace("_", "-")
