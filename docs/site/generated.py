"""Pages and tables that are made from the code."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import command_line
from sphinx_text import as_markdown

from torchx_runner import get_runner
from torchx_specs import hookspecs
from torchx_specs.schedulers.features import SchedulerFeatures

ROOT = Path(__file__).parents[2]
OPTIONS = re.compile(r"^<!-- options: (\w+) -->$", re.M)
COMPONENTS = "<!-- components -->"
FEATURES = "<!-- features -->"
STATES = re.compile(r"^<!-- states: ([\w.]+) -->$", re.M)

# For each page of the reference: the title, the introduction, and the modules with the names to
# show. An empty text means all public names: those in __all__, or without a leading underscore.
REFERENCE: dict[str, tuple[str, str, dict[str, str]]] = {
    "specs": (
        "Specs",
        "The data model: `import torchx_specs`, or `import torchx.specs`.",
        {"torchx_specs": ""},
    ),
    "runner": (
        "Runner",
        "The Python API of the command.",
        {"torchx_runner": "Runner get_runner AsyncRunner"},
    ),
    "schedulers": (
        "Schedulers",
        "What a scheduler implements, and what it returns.",
        {
            "torchx_specs.schedulers": "",
            "torchx_specs.schedulers.request_checks": "RequestRules check_request",
            "torchx_specs.schedulers.features": "SchedulerFeatures No",
            "torchx_specs.schedulers.logs": "LogQuery Logs",
            "torchx_specs.schedulers.log_items": "",
            "torchx_specs.schedulers.sessions": "",
            "torchx_specs.schedulers.arrays": "Arrays",
        },
    ),
    "workspace": (
        "Workspaces",
        "What a workspace builder implements.",
        {"torchx_specs.workspace.spec": "Workspace", "torchx_specs.workspace.api": ""},
    ),
    "tracker": (
        "Trackers",
        "Tracking from inside a job, and what a tracker implements.",
        {"torchx_tracker": "", "torchx_specs.trackers.api": ""},
    ),
    "overlays": ("Overlays", "Patches of a scheduler's request.", {"torchx_specs.overlays": ""}),
    "linter": ("Linter", "Checks of a component's source.", {"torchx_specs.file_linter": ""}),
    "errors": (
        "Errors",
        "Every error is a `TorchXError` with an exit code.",
        {"torchx_specs.errors": ""},
    ),
    "kit": (
        "Kit",
        "What authors of schedulers, workspace builders and trackers share.",
        {
            "torchx_kit.hosts.api": "",
            "torchx_kit.names.ids": "",
            "torchx_kit.role_checks": "",
            "torchx_kit.retry": "",
            "torchx_kit.jobs.logs": "",
            "torchx_kit.jobs.descriptions": "",
            "torchx_kit.scripts.shell": "",
        },
    ),
    "testing": (
        "Testing",
        "The conformance suites: see [torchx-testing](../packages/torchx-testing.md).",
        {
            "torchx_testing.plugin_suite": "",
            "torchx_testing.scheduler_suite": "SchedulerConformance",
            "torchx_testing.scheduler_cases.fixtures": "SchedulerFixtures",
            "torchx_testing.tracker_suite": "",
            "torchx_testing.workspace_suite": "",
        },
    ),
}


def distributions() -> list[str]:
    """Return the names of the distributions."""
    return sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))


def hook_names() -> list[str]:
    """Return the names of the hooks."""
    return list(hookspecs.HOOKS)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown of each generated page."""
    for name in hook_names():
        yield f"hooks/{name}.md", _hook_page(name)
    for name, (title, introduction, modules) in REFERENCE.items():
        parts = [f"# {title} API", introduction]
        for module, names in modules.items():
            found = names.split() or _public_names(module)
            parts += [f"::: {module}.{each}" for each in found]
        yield f"reference/{name}.md", "\n\n".join(parts) + "\n"
    yield "reference/components.md", _components_page()
    yield "reference/cli.md", command_line.page()


def fill(markdown: str) -> str:
    """Return a page with tables of options, features and states in place of its placeholders."""
    if FEATURES in markdown:
        markdown = markdown.replace(FEATURES, _features_table())
    markdown = STATES.sub(lambda match: _states_table(match[1]), markdown)
    return OPTIONS.sub(lambda match: _options_table(match[1]), markdown)


def _features_table() -> str:
    """Return what each scheduler can do as a table, and the reasons for what it cannot do."""
    docs = re.findall(r"^ +(\w+): (.+)$", inspect.getdoc(SchedulerFeatures) or "", re.M)
    with get_runner() as runner:
        records = {name: runner.features(name) for name in runner.scheduler_backends()}
    heads = " | ".join(f"`{name}`" for name in records)
    rows = [f"| | {heads} |", "|---" * (len(records) + 1) + "|"]
    for feature, what in docs:
        values = [getattr(record, feature) for record in records.values()]
        cells = ["yes" if value else "no" for value in values]
        rows.append(f"| {what.rstrip('.')} | {' | '.join(cells)} |")
    reasons: dict[str, list[str]] = {}
    for name, record in records.items():
        for feature, reason in record.lacks().items():
            reasons.setdefault(f"`{feature}`: {reason}", []).append(f"`{name}`")
    lines = [f"- {', '.join(names)}: {reason}" for reason, names in sorted(reasons.items())]
    return "\n".join([*rows, "", *lines])


def _states_table(module: str) -> str:
    """Return the states of a batch system and the causes of ends as a table.

    Args:
        module: The module with the table ``STATES`` and, if the causes are no states, ``CAUSES``.
    """
    tables = importlib.import_module(module)
    rows = ["| state or cause | shown as | meaning |", "|---|---|---|"]
    for name, state in tables.STATES.items():
        rows.append(f"| `{name}` | {state.phase.app_state.name} | {state.meaning} |")
    for name, cause in getattr(tables, "CAUSES", {}).items():
        rows.append(f"| the job ended with `{name}` | {cause.app_state.name} | {cause.meaning} |")
    return "\n".join(rows)


def _public_names(module: str) -> list[str]:
    """Return the public names of a module; for a package, also names from its modules."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(loaded).items()
            if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith(module)
        ]
    found = [name for name in names if not name.startswith("_")]
    return [name for name in found if not inspect.ismodule(getattr(loaded, name))]


def _hook_page(name: str) -> str:
    """Return the page of a hook: its signature, its docstring, its record's fields, its factory."""
    function = getattr(hookspecs, name)
    record = hookspecs.HOOKS[name]
    text = _rst(inspect.getdoc(function) or "")
    options = "\n    options:\n      heading_level: 3"
    parts = [
        f"# {name}",
        f"```python\ndef {name}() -> Iterable[{record.__name__}]: ...\n```",
        text,
        "## The record",
        f"::: {record.__module__}.{record.__name__}{options}",
    ]
    # A record class derives from Record["factories.NAME"], unless it has no factory.
    if factory := re.search(r"factories\.(\w+)", repr(getattr(record, "__orig_bases__", ""))):
        parts += ["## The factory", f"::: torchx_specs.plugins.factories.{factory[1]}{options}"]
    return "\n\n".join(parts)


def _rst(text: str) -> str:
    """Return a docstring as Markdown; literal blocks become code blocks in Python."""
    lines, out, block = text.splitlines(), [], []
    literal = False
    for line in [*lines, "end"]:
        if literal and (line.startswith("    ") or not line.strip()):
            block.append(line)
            continue
        if literal:
            code = textwrap.dedent("\n".join(block)).strip("\n")
            out += ["", "```python", code, "```", ""]
            literal, block = False, []
        literal = line.endswith("::")
        out.append(line)
    return as_markdown("\n".join(out[:-1]))


def _options_table(scheduler: str) -> str:
    """Return the options of a scheduler as a table."""
    with get_runner() as runner:
        options = runner.scheduler_run_opts(scheduler)
    rows = ["| option | type | default | effect |", "|---|---|---|---|"]
    for name, option in options:
        kind = getattr(option.opt_type, "__name__", str(option.opt_type))
        default = "required" if option.is_required else _cell(repr(option.default))
        rows.append(f"| `{name}` | `{_cell(kind)}` | {_code(default)} | {_cell(option.help)} |")
    return "\n".join(rows)


def _code(text: str) -> str:
    return text if text == "required" else "none" if text == "None" else f"`{text}`"


def _cell(text: str) -> str:
    """Return a text with the characters escaped that would end a cell of a Markdown table."""
    text = " ".join(text.split()).replace("|", "\\|")
    return text.replace("<", "&lt;").replace("${", "$&#123;")


def _components_page() -> str:
    """Return the page of the built-in components, which shows their docstrings."""
    import torchx_components

    parts = [
        "# Built-in components",
        "The components of `torchx-components`, which `torchx builtins` lists.",
    ]
    folder = Path(str(torchx_components.__file__)).parent
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("_") and path.stem != "plugin":
            names = _component_names(f"torchx_components.{path.stem}")
            parts += [f"::: torchx_components.{path.stem}.{name}" for name in names]
    return "\n\n".join(parts) + "\n"


def _component_names(module: str) -> list[str]:
    loaded = importlib.import_module(module)
    return [
        name
        for name, value in vars(loaded).items()
        if inspect.isfunction(value) and value.__module__ == module and not name.startswith("_")
    ]
