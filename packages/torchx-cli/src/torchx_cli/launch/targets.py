"""Reads what ``torchx run`` runs: a component, or a script, module or command.

A script, module or command becomes a call of a built-in component, which is recorded and can be
written as ``torchx run COMPONENT``, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import click

from torchx_specs.errors import ComponentNotFoundException, RequestError, nearest

#: The options for scripts and commands, with metavar and help, by the parameter of the built-in
#: components that they set.
SIZE = {
    "j": ("-j", "NODESxPROCESSES", "Start this number of processes on each node, by torchrun."),
    "num_replicas": ("--replicas", "N", "Run this number of replicas.  [default: 1]"),
    "cpu": ("--cpu", "N", "Request this number of CPUs for each replica."),
    "gpu": ("--gpu", "N", "Request this number of GPUs for each replica."),
    "memMB": ("--memMB", "MB", "Request this amount of memory for each replica, in MB."),
    "h": ("--host-resource", "NAME", "Request this named resource, such as gpu.small."),
    "image": ("--image", "IMAGE", "Run in this container image."),
    "mounts": ("--mounts", "SRC:DST[:ro],...", "Mount directories of the host."),
    "max_retries": ("--max-retries", "N", "Restart a failed job so often.  [default: 0]"),
}
#: The key of the target's form in the metadata of a context.
FORM = "torchx.target_form"


class Form(Enum):
    """How the target is written on the command line."""

    PLAIN = "TARGET ..."
    MODULE = "-m MODULE ..."
    AFTER_DASHES = "-- COMMAND ..."


class Target(NamedTuple):
    """A component and its arguments.

    Attributes:
        component: The component.
        arguments: Its arguments.
        name: The name of the app; None keeps the component's.
        program: The script, module or command that the component runs; None if the target is a
            component, whose parameters are known.
    """

    component: str
    arguments: list[str]
    name: str | None = None
    program: str | None = None


def split_form(
    options: Iterable[click.Parameter], args: Sequence[str], first: Collection[str] = ()
) -> tuple[Form, list[str]]:
    """Return the form of the target, and the command line with ``--`` in place of ``-m``.

    Abbreviated options before the target get their whole names, unless an abbreviation could mean
    several options.

    Args:
        options: The options of ``torchx run``.
        args: The command line after ``torchx run``.
        first: Names of options; an abbreviation of one of them means no other option.
    """
    known = {
        name: option
        for option in options
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    words = [*args]
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        if words[position] == "--":
            return Form.AFTER_DASHES, words
        if words[position] == "-m":
            words[position] = "--"
            return Form.MODULE, words
        name, equals, value = words[position].partition("=")
        if name not in known:
            meant = [one for one in first if one.startswith(name)]
            meant = meant or [one for one in known if one.startswith(name)]
            if len({known[one] for one in meant}) == 1:
                name = meant[-1]
                words[position] = f"{name}{equals}{value}"
        option = known.get(name)
        position += 1 if option is None or option.is_flag or equals else 2
    return Form.PLAIN, words


def read_target(
    form: Form,
    argv: Sequence[str],
    size: Mapping[str, str],
    workspace: str | None,
    given: Collection[str] = (),
) -> Target:
    """Return the component that runs a target, and its arguments.

    Args:
        form: How the target is written.
        argv: The target and its arguments; not empty.
        size: The options of ``torchx run`` for scripts and commands, by the parameter of the
            built-in components that they set.
        workspace: The directory that is uploaded; None if none is.
        given: The parameters in ``size`` that the command line sets, and not ``.torchxconfig``.

    Raises:
        RequestError: A script does not exist, or an option does not fit the target.
        ComponentNotFoundException: A command is not found, and a component has a similar name.
    """
    first, *arguments = argv
    if form is Form.MODULE:
        return _python("-m", first, first.rpartition(".")[2], arguments, size)
    if form is Form.AFTER_DASHES and not _is_component(first):
        return _command(first, arguments, size)
    if first.endswith(".py"):
        found = _component_in(first, workspace)
        if found is None:
            script, name = _below(first, workspace), os.path.basename(first)[: -len(".py")]
            return _python("--script", script, name, arguments, size)
        first = found
    if os.path.isdir(first) and not _is_component(first):
        script = os.path.join(first, "train.py")
        raise RequestError(f"'{first}' is a directory; give a script in it, such as {script}")
    if given:
        options = ", ".join(SIZE[name][0] for name in given)
        raise RequestError(
            f"{options}: for scripts, modules and commands only; {first} is a component: give its"
            f" own arguments after its name (torchx run {first} --help lists them)"
        )
    return Target(first, arguments)


def _python(
    option: str, program: str, name: str, arguments: list[str], size: Mapping[str, str]
) -> Target:
    if "j" in size and "num_replicas" in size:
        raise RequestError("-j and --replicas exclude each other: -j NODESxPROCESSES sets both")
    if "j" in size:  # the component has the same default for the name
        words = [option, program, *_options(size), "--", *arguments]
        return Target("dist.ddp", words, program=program)
    words = [option, program, *_options({"name": name, **size}), "--", *arguments]
    return Target("utils.python", words, program=program)


def _command(program: str, arguments: list[str], size: Mapping[str, str]) -> Target:
    if "j" in size:
        raise RequestError(
            f"-j is for scripts and modules; {program} is a command: use --replicas, or give"
            " torchrun's own options (torchx run -- torchrun --nproc_per_node 8 train.py)"
        )
    import shutil  # imports ten modules

    # A program without a dot in its name may exist in the image or on the cluster only.
    if "." in program and shutil.which(program) is None and not os.path.exists(program):
        from torchx_runner.components.finder import list_components

        similar = nearest(program, list_components().components)
        if similar:
            raise ComponentNotFoundException(
                f"no component and no program has the name '{program}';{similar}"
            )
    words = [*_options(size), "--", program, *arguments]
    return Target("utils.sh", words, os.path.basename(program), program)


def _options(values: Mapping[str, str]) -> list[str]:
    options = (("-j" if key == "j" else f"--{key}", value) for key, value in values.items())
    return [word for option in options for word in option]


def _is_component(name: str) -> bool:
    from torchx_cli.output.app_data import is_document
    from torchx_runner.components.finder import is_registered

    return ":" in name or is_document(name) or is_registered(name)


def _component_in(path: str, workspace: str | None) -> str | None:
    """Return ``FILE.py:FUNCTION`` for a file with a component; None if the file is a script.

    The file is read, and not executed.

    Raises:
        RequestError: The file cannot be read, or has several components.
    """
    from torchx_specs.components.source import read_source

    file = path
    if not os.path.exists(path) and workspace is not None:
        file = os.path.join(workspace, path)
    if os.path.isdir(file):
        raise RequestError(f"script '{path}' is a directory")
    if not os.path.exists(file):
        raise RequestError(f"script '{path}' does not exist;{_similar_script(file)}".rstrip(";"))
    try:
        # Reading a device or a named pipe may never end.
        components = read_source(file).components() if os.path.isfile(file) else []
    except OSError as e:
        raise RequestError(f"script '{path}' cannot be read: {e.strerror}") from None
    except (SyntaxError, ValueError):
        return None  # the job's Python may accept it
    if len(components) > 1:
        names = ", ".join(f"{path}:{name}" for name in components)
        raise RequestError(f"'{path}' has several components; name one: {names}")
    return f"{path}:{components[0]}" if components else None


def _similar_script(file: str) -> str:
    folder, name = os.path.split(file)
    try:
        scripts = [entry for entry in os.listdir(folder or ".") if entry.endswith(".py")]
    except OSError:
        return ""
    return nearest(name, scripts)


def _below(path: str, workspace: str | None) -> str:
    """Return a script's path relative to the workspace, where the job runs, if it is inside."""
    if workspace is None or not os.path.exists(path):
        return path
    relative = os.path.relpath(path, workspace)
    return path if relative.startswith(os.pardir) else relative
