"""Completes the names of components, and the options of a component."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from torchx_cli.completion.source import Parameter, Source, module_file, module_files
from torchx_runner.components.groups import component_groups, name_prefix

if TYPE_CHECKING:
    import click


def complete_components(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> Iterator[CompletionItem]:
    """Yield components or, after the name of a component, its options, their values and files."""
    given: Any = ctx.params.get(param.name or "") or ()
    if given:
        yield from _arguments(given[0], given[1:], incomplete)
        return
    path, colon, function = incomplete.rpartition(":")
    if colon:
        file = path if os.path.isfile(path) else module_file(path)
        if file is not None:
            for name in Source(file).components():
                if name.startswith(function):
                    yield CompletionItem(f"{path}:{name}")
        return
    if incomplete.endswith(".py") and os.path.isfile(incomplete):
        for name in Source(incomplete).components():
            yield CompletionItem(f"{incomplete}:{name}")
        return
    for name in sorted(_registered(incomplete)):
        yield CompletionItem(name)
    yield CompletionItem(incomplete, type="open")


def _registered(incomplete: str) -> set[str]:
    """Return the names of registered components that begin with a text."""
    found = set()
    for group in component_groups():
        prefix = name_prefix(group.group)
        for module, file in module_files(group.module):
            below = module.removeprefix(group.module).lstrip(".")
            start = ".".join(filter(None, (prefix, below)))
            if (
                start
                and not f"{start}.".startswith(incomplete)
                and not incomplete.startswith(f"{start}.")
            ):
                continue  # no name of this module matches, so its file is not read
            try:
                names = Source(file).components()
                found |= {".".join(filter(None, (start, name))) for name in names}
            except (OSError, SyntaxError, ValueError):
                continue
    return {name for name in found if name.startswith(incomplete)}


def _parameters(component: str) -> list[Parameter] | None:
    """Return the parameters of a component; None if its source is not found."""
    path, colon, function = component.rpartition(":")
    if colon:
        file = path if os.path.isfile(path) else module_file(path)
        return None if file is None else list(Source(file).parameters(function))
    for group in component_groups():
        prefix = name_prefix(group.group)
        if prefix and not component.startswith(f"{prefix}."):
            continue
        relative = component[len(prefix) + 1 :] if prefix else component
        *modules, function = relative.split(".")
        file = module_file(".".join((group.module, *modules)))
        if file is not None:
            found = Source(file)
            if function in found.components():
                return list(found.parameters(function))
    return None


def _arguments(component: str, given: tuple[str, ...], incomplete: str) -> Iterator[CompletionItem]:
    """Yield the words that may follow the name of a component.

    Args:
        component: The component.
        given: The arguments before the last word.
        incomplete: The last word.
    """
    known = _parameters(component)
    parameters = known or []
    by_option = {_key(option): p for p in parameters for option in p.options}
    has_varargs = any(p.is_varargs for p in parameters)
    used: set[str] = set()
    pending: Parameter | None = None
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
        for item in _values(by_option[_key(name)], value):
            if item.type == "plain":
                item.value = f"{name}={item.value}"
            yield item
        return
    if incomplete.startswith("-") or not has_varargs:
        for parameter in parameters:
            if parameter.name not in used or parameter.repeats:
                negated = [f"--no-{parameter.name}"] if parameter.is_flag else []
                for option in (*parameter.options, *negated):
                    if _key(option).startswith(_key(incomplete)):
                        yield CompletionItem(option)
        if not given and "--help".startswith(incomplete):
            yield CompletionItem("--help")
    if not incomplete.startswith("-") and (has_varargs or known is None):
        yield CompletionItem(incomplete, type="file")


def _values(parameter: Parameter, incomplete: str) -> Iterator[CompletionItem]:
    choices = ("true", "false") if parameter.is_flag else parameter.choices
    before, comma, last = incomplete.rpartition(",") if parameter.repeats else ("", "", incomplete)
    for choice in choices:
        if choice.startswith(last):
            yield CompletionItem(f"{before}{comma}{choice}")
    if parameter.name == "h" and not choices:
        from torchx_specs.resources.registry import named_resources

        names = [name for name in named_resources if name.startswith(incomplete)]
        for name in names:
            yield CompletionItem(name)
    elif parameter.takes_files:
        yield CompletionItem(incomplete, type="file")


def _key(option: str) -> str:
    return option.replace("_", "-")
