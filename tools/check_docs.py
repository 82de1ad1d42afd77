"""Checks that what the documentation says is so.

- Relative links, and their anchors, lead somewhere.
- Commands in ``sh`` blocks exist: nox sessions, bootstrap commands, tools, sub-commands of torchx.
- ``python`` blocks run: those of one page together, in order, in a process and folder of their own.
- Every distribution's README has the parts that a reader looks for.
- Every hook is on the page about plugins, and the example in its docstring is a plugin that works.
"""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import bootstrap
import distributions

ROOT = distributions.ROOT
PLUGINS_PAGE = ROOT / "docs" / "plugins.md"
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.M)

# What a distribution's README has to have, and how that is recognised.
PARTS = {
    "a section `## Install` with its `pip install` line": r"^## Install\n(?:(?!^## ).)*pip install",
    "a section `## Use` with a code block": r"^## Use\n(?:(?!^## ).)*^```\w+",
    "a section `## Inside` that says what is where": r"^## Inside\n",
}


def pages() -> list[Path]:
    """Every page of documentation."""
    return sorted(
        [
            *ROOT.glob("*.md"),
            *ROOT.glob("docs/**/*.md"),
            *ROOT.glob("integration/**/*.md"),
            *ROOT.glob("packages/*/README.md"),
        ]
    )


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page.read_text("utf-8")) if name == language]


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    titles = (re.sub(r"[`*]|\(.*?\)", "", title) for title in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists():
            yield f"link to {target}: no such file"
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            yield f"link to {target}: no such heading"


class Commands:
    """What a command line in the documentation may call."""

    def __init__(self) -> None:
        listed = subprocess.run(
            [bootstrap.ENVIRONMENT / "bin" / "nox", "-l"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.sessions = set(re.findall(r"^[*-] ([\w.()]+)", listed, re.M))
        self.sessions |= {name.partition("(")[0] for name in self.sessions}
        torchx = bootstrap.ENVIRONMENT / "bin" / "torchx"
        done = subprocess.run([torchx, "--help"], capture_output=True, text=True, check=False)
        self.torchx = set(re.findall(r"^  +([a-z][\w-]*)(?:  |$)", done.stdout, re.M))

    def wrong(self, line: str) -> str | None:
        """What is wrong with a command line, if anything."""
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=\S*", words[0]):
            del words[0]
        if words[:1] in (["python3"], ["python"]) and len(words) > 1:
            script = words[1]
            if script.startswith("-"):
                return None
            if not (ROOT / script).exists():
                return f"no such file: {script}"
            if script == "tools/bootstrap.py":
                if len(words) < 3 or words[2] not in bootstrap.COMMANDS:
                    return f"bootstrap.py has no such command: {line}"
                words = words[2:] if words[2] == "nox" else []
        if words[:1] == ["nox"] and "-s" in words:
            names = words[words.index("-s") + 1 :]
            names = names[: names.index("--")] if "--" in names else names
            missing = [name for name in names if name not in self.sessions]
            return f"no nox session named {', '.join(missing)}" if missing else None
        if words[:1] == ["torchx"] and len(words) > 1 and not words[1].startswith("-"):
            return None if words[1] in self.torchx else f"torchx has no sub-command {words[1]}"
        if (
            words
            and words[0].startswith((".ci/", "integration/"))
            and not (ROOT / words[0]).exists()
        ):
            return f"no such file: {words[0]}"
        return None


def command_lines(page: Path) -> Iterator[str]:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                yield line.removeprefix("$ ")


def run_python(code: str) -> str:
    """Runs code in a process and folder of its own; what went wrong, or ""."""
    with tempfile.TemporaryDirectory(prefix="torchx-docs-") as folder:
        script = Path(folder, "example.py")
        script.write_text(code, "utf-8")
        variables = bootstrap.activated()
        variables.update(HOME=folder, TORCHX_HOME=f"{folder}/torchx")
        done = subprocess.run(
            [bootstrap.ENVIRONMENT / "bin" / "python", script],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def missing_parts(member: distributions.Distribution) -> Iterator[str]:
    page = member.folder / "README.md"
    if not page.exists():
        yield "missing"
        return
    text = page.read_text("utf-8")
    if not text.startswith(f"# {member.name}\n"):
        yield f"doesn't begin with `# {member.name}`"
    for part, pattern in PARTS.items():
        if not re.search(pattern, text, re.M | re.S):
            yield f"lacks {part}"
    inside = text.partition("\n## Inside\n")[2].partition("\n## ")[0]
    cells = " ".join(line.split("|")[1] for line in inside.splitlines() if line.startswith("|"))
    for name in re.findall(r"`([^`]+)`", cells):
        if not (member.source / name).exists():
            yield f"`## Inside` names {name}, which {member.module} doesn't have"


# Runs the example of one hook's docstring, and checks what it yields.
RUN_HOOK = """
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
            yield f"{PLUGINS_PAGE.relative_to(ROOT)}: the hook {name} isn't there"
        docstring = inspect.getdoc(getattr(hookspecs, name)) or ""
        _, found, example = docstring.partition("::\n\n")
        if not found:
            yield f"hookspecs.py: the docstring of {name} has no example"
            continue
        lines = example.splitlines()
        after = (n for n, line in enumerate(lines) if line and not line.startswith(" "))
        code = textwrap.dedent("\n".join(lines[: next(after, len(lines))]))
        problem = run_python(code + RUN_HOOK.format(name=name))
        if problem:
            yield f"hookspecs.py: the example of {name} fails: {problem}"


def main() -> int:
    problems = []
    commands = Commands()
    count = 0
    for page in pages():
        name = page.relative_to(ROOT)
        problems += [f"{name}: {problem}" for problem in broken_links(page)]
        for line in command_lines(page):
            count += 1
            wrong = commands.wrong(line)
            if wrong:
                problems.append(f"{name}: {wrong}")
        code = "\n".join(blocks(page, "python"))
        if code:
            count += 1
            wrong = run_python(code)
            if wrong:
                problems.append(f"{name}: its python blocks fail: {wrong}")
    for member in distributions.members():
        name = (member.folder / "README.md").relative_to(ROOT)
        problems += [f"{name}: {problem}" for problem in missing_parts(member)]
    problems += hook_problems()
    for problem in problems:
        print(problem)
    print(f"docs: {len(pages())} pages, {count} commands and examples, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
