"""Check the documentation: ``python tools/check_docs.py``.

- Relative links, and their anchors, exist.
- Commands in ``sh`` blocks exist: nox sessions, scripts, sub-commands of torchx.
- ``torchx run`` and ``torchx sweep`` on the pages in DRY_RUN_PAGES succeed with ``--dryrun``.
- ``python`` blocks run without errors. The blocks of one page run together, in a new process and
  folder. A block with ``title=FILE`` is also the content of that file in the folder.
- The README of each distribution has the required sections.
- Every hook is described in docs/plugins.md, and the example in its docstring works.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from workspace import ROOT, Distribution, members

BIN = Path(sys.prefix) / "bin"
PLUGINS_PAGE = ROOT / "docs" / "plugins.md"
PAGES = ("*.md", "changelog.d/*.md", "docs/**/*.md", "integration/**/*.md", "packages/*/README.md")
# Commands on these pages are dry-run, in `sh` blocks and in cells of tables.
DRY_RUN_PAGES = ("docs/comparison.md", "docs/howto.md", "docs/schedulers/*.md")
SCRIPTS = ("train.py", "evaluate.py", "pkg/train.py")
SUBMISSION = re.compile(r"torchx( --profile \w+)? (run|sweep)(?= -|.*\.py\b)")
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
TITLED = re.compile(r"^```\w+ title=(\S+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!\w+:)([^)\s]+)\)")  # Skips https: and mailto: links.
HEADING = re.compile(r"^#+ +(.+?) *$", re.M)

# The sections of a distribution's README.
SECTIONS = {
    "a section `## Install` with its `pip install` line": r"^## Install\n(?:(?!^## ).)*pip install",
    "a section `## Use` with a code block": r"^## Use\n(?:(?!^## ).)*^```\w+",
    "a section `## Modules` with a table of modules": r"^## Modules\n",
}


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return [text for name, text in BLOCK.findall(page.read_text("utf-8")) if name == language]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    titles = (re.sub(r"[`*]|\(.*?\)", "", title) for title in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists():
            yield f"link to {target}: no such file"
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            yield f"link to {target}: no such heading"


def nox_sessions() -> set[str]:
    """Return the names of nox's sessions, with and without their parameters."""
    command = [str(BIN / "nox"), "-l"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(re.findall(r"^[*-] ([\w.()-]+)", done.stdout, re.M))
    return names | {name.partition("(")[0] for name in names}


def torchx_commands() -> set[str]:
    """Return the sub-commands that ``torchx --help`` lists."""
    done = subprocess.run([BIN / "torchx", "--help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"^  +([a-z][\w-]*)(?:  |$)", done.stdout, re.M))


def wrong_command(
    line: str, sessions: set[str], torchx: set[str], files: Mapping[str, str]
) -> str | None:
    """Return the problem of a command line on a page, or None.

    Args:
        line: The command line.
        sessions: The names of nox's sessions.
        torchx: The sub-commands of ``torchx``.
        files: The page's blocks with a title, by file name.
    """
    argv = shlex.split(line, comments=True)
    while argv and re.fullmatch(r"\w+=\S*", argv[0]):
        del argv[0]
    if argv[:1] in (["python3"], ["python"]) and len(argv) > 1 and not argv[1].startswith("-"):
        if argv[1] not in files and not (ROOT / argv[1]).exists():
            return f"no such file: {argv[1]}"
        if argv[1] == "tools/bootstrap.py":
            argv = argv[2:]
    if argv[:1] == ["nox"] and "-s" in argv:
        names = argv[argv.index("-s") + 1 :]
        names = names[: names.index("--")] if "--" in names else names
        missing = [name for name in names if name not in sessions]
        return f"no nox session named {', '.join(missing)}" if missing else None
    if argv[:1] == ["torchx"] and len(argv) > 1 and not argv[1].startswith("-"):
        return None if argv[1] in torchx else f"torchx has no sub-command {argv[1]}"
    if argv and argv[0].startswith((".ci/", "integration/")) and not (ROOT / argv[0]).exists():
        return f"no such file: {argv[0]}"
    return None


def command_lines(page: Path) -> Iterator[str]:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line.removeprefix("$ ")


def dry_runs(pages: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each command that can be dry-run, with its page; a command about another job cannot."""
    for page in pages:
        rows = re.findall(r"^\|.*", page.read_text("utf-8"), re.M)
        cells = re.findall(r"`(torchx [^`]+)`", "\n".join(rows))
        for line in [*command_lines(page), *cells]:
            if SUBMISSION.match(line) and "@" not in line.replace("slurm@", ""):
                yield page, line


def dry_run_problems() -> Iterator[str]:
    """Run the commands of DRY_RUN_PAGES with ``--dryrun``; yield the last line of each failure."""
    commands = [*dry_runs(page for pattern in DRY_RUN_PAGES for page in ROOT.glob(pattern))]
    with tempfile.TemporaryDirectory(prefix="torchx-docs-") as home:
        project = Path(home, "project")
        for name in SCRIPTS:
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).touch()
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": home,
            "TORCHX_HOME": f"{home}/torchx",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }

        def failure(command: tuple[Path, str]) -> str:
            page, line = command
            done = subprocess.run(
                shlex.split(SUBMISSION.sub(r"\g<0> --dryrun", line, count=1)),
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            if done.returncode == 0:
                return ""
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return f"{page.relative_to(ROOT)}: the dry run of '{line}' fails: {last}"

        with ThreadPoolExecutor(2) as pool:
            yield from filter(None, pool.map(failure, commands))


def run_python(code: str, files: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run code in a new process, in a new folder that contains ``files``.

    Return the last line of the error output if the code fails, otherwise an empty string.
    """
    with tempfile.TemporaryDirectory(prefix="torchx-docs-") as home:
        script = Path(home, "project", "example.py")
        for name, text in {script.name: code, **files}.items():
            path = script.parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        done = subprocess.run(
            [sys.executable, script],
            cwd=script.parent,
            env={**os.environ, "HOME": home, "TORCHX_HOME": f"{home}/torchx"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def readme_problems(member: Distribution) -> Iterator[str]:
    page = member.folder / "README.md"
    if not page.exists():
        yield "missing"
        return
    text = page.read_text("utf-8")
    if not text.startswith(f"# {member.name}\n"):
        yield f"doesn't begin with `# {member.name}`"
    for section, pattern in SECTIONS.items():
        if not re.search(pattern, text, re.M | re.S):
            yield f"lacks {section}"
    inside = text.partition("\n## Modules\n")[2].partition("\n## ")[0]
    cells = " ".join(line.split("|")[1] for line in inside.splitlines() if line.startswith("|"))
    for name in re.findall(r"`([^`]+)`", cells):
        if not any(member.source.rglob(name)):
            yield f"`## Modules` names {name}, which {member.module} doesn't have"


# Code that is appended to the example in a hook's docstring.
CALL_HOOK = """
from torchx_specs.hookspecs import HOOKS
records = list({name}())
assert records, "yields nothing"
for record in records:
    assert isinstance(record, HOOKS["{name}"]), record
"""


def hook_problems() -> Iterator[str]:
    from torchx_specs import hookspecs

    page = PLUGINS_PAGE.read_text("utf-8")
    for name in hookspecs.HOOKS:
        if f"`{name}`" not in page:
            yield f"{PLUGINS_PAGE.relative_to(ROOT)}: the hook {name} is missing"
        docstring = inspect.getdoc(getattr(hookspecs, name)) or ""
        example = re.search(r"::\n\n((?: .*\n|\n)*(?: .*)?)", docstring)
        if example is None:
            yield f"hookspecs.py: the docstring of {name} has no example"
            continue
        problem = run_python(textwrap.dedent(example[1]) + CALL_HOOK.format(name=name))
        if problem:
            yield f"hookspecs.py: the example of {name} fails: {problem}"


def main() -> int:
    problems = []
    sessions, torchx = nox_sessions(), torchx_commands()
    pages = sorted(page for pattern in PAGES for page in ROOT.glob(pattern))
    for page in pages:
        found = [*broken_links(page)]
        files = dict(TITLED.findall(page.read_text("utf-8")))
        lines = command_lines(page)
        found += [wrong_command(line, sessions, torchx, files) or "" for line in lines]
        if code := "\n".join(blocks(page, "python")):
            failure = run_python(code, files)
            found.append(failure and f"its python blocks fail: {failure}")
        problems += [f"{page.relative_to(ROOT)}: {problem}" for problem in found if problem]
    for member in members():
        name = f"packages/{member.name}/README.md"
        problems += [f"{name}: {problem}" for problem in readme_problems(member)]
    problems += dry_run_problems()
    problems += hook_problems()
    print(*problems, f"{len(pages)} pages, {len(problems)} problems", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
