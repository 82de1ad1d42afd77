"""The command ``torchx lint``."""

from __future__ import annotations

import ast

import click

from torchx_cli.arguments.options import Command, output_option
from torchx_cli.completion.values import complete_files
from torchx_cli.exit_codes import BAD_REQUEST, fail
from torchx_cli.output.printing import TABLE, write, write_data
from torchx_specs import file_linter
from torchx_specs.components.source import read_source, return_annotation
from torchx_specs.errors import RequestError


@click.command("lint", cls=Command)
@output_option
@click.argument(
    "targets",
    metavar="FILE[:FUNCTION]...",
    nargs=-1,
    required=True,
    shell_complete=complete_files,
)
def command(targets: tuple[str, ...], output_format: str) -> None:
    """Check the components in FILE, or one FUNCTION.

    Prints PATH:LINE:COLUMN: SEVERITY: MESSAGE for each finding. The exit code is 2 if a finding is
    an error.
    """
    findings = [finding for target in targets for finding in _check(target)]
    if output_format == TABLE:
        for item in findings:
            write("{path}:{line}:{char}: {severity}: {description}".format(**item))
    else:
        write_data(findings, output_format)
    if any(item["severity"] == "error" for item in findings):
        fail(BAD_REQUEST)


def _check(target: str) -> list[dict[str, object]]:
    path, _, function = target.rpartition(":")
    if not path:
        path, function = target, ""
    names = _components(path)
    if function:
        names = [function]
    elif not names:
        raise RequestError(
            f"{path}: contains no component, which is a function that returns an AppDef"
        )
    found = [
        {
            "path": path,
            "component": name,
            "line": message.line,
            "char": message.char,
            "severity": message.severity,
            "name": message.name,
            "description": " ".join(message.description.split()),
        }
        for name in names
        for message in file_linter.validate(path, name)
    ]
    # The linter reports an error of the whole file once for each function: keep one of them.
    unique = {(m["line"], m["char"], m["description"]): m for m in found}
    return sorted(unique.values(), key=lambda m: (m["line"], m["char"]))


def _components(path: str) -> list[str]:
    """Return the names of the functions and classes in a file that look like components.

    If the file has a syntax error, the only name is empty.

    Raises:
        RequestError: The file cannot be read.
    """
    try:
        definitions = read_source(path).definitions
    except OSError as e:
        raise RequestError(f"{path}: cannot be read: {e.strerror or e}") from None
    except (SyntaxError, ValueError):
        return [""]  # the linter then reports the line of the syntax error
    return [
        name
        for name, (*_, node) in definitions.items()
        if (returns := return_annotation(node)) is not None
        and ("AppDef" in returns or isinstance(node, ast.ClassDef))
    ]
