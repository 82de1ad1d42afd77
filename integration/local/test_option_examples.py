"""Tests of the examples of options, in help texts and on pages: each is valid as printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from torchx_cli.arguments.scheduler_choice import parse_cfg, take_host
from torchx_runner import get_runner
from torchx_specs import runopts

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *ROOT.glob("packages/*/README.md"), *ROOT.glob("docs/**/*.md")]


def options() -> dict[str, runopts]:
    with get_runner() as runner:
        return {name: runner.scheduler_run_opts(name) for name in runner.scheduler_backends()}


def of_help_texts(opts: runopts) -> Iterator[str]:
    for _, option in opts:
        yield from re.findall(r"Example: (.+)", " ".join(option.help.split()))


def of_commands(scheduler: str, text: str) -> Iterator[str]:
    """Yield the values of -cfg in the commands of a page that name the scheduler."""
    for line in re.findall(r"^(?:\$ )?(torchx .+)", text.replace("\\\n", " "), re.M):
        words = shlex.split(line, comments=True)
        if scheduler in words:
            yield from (value for word, value in pairwise(words) if word == "-cfg")


def of_text(opts: runopts, text: str) -> Iterator[str]:
    """Yield the options with values in the inline code of a page."""
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        match = re.fullmatch(r"(?:-cfg )?'?(\w[\w-]*)=(.+?)'?", code)
        if match and opts.canonical_key(match[1]):
            yield shlex.split(code)[-1] if code.startswith("-cfg ") else code


def examples() -> Iterator[tuple[str, str]]:
    for scheduler, opts in options().items():
        found = dict.fromkeys(of_help_texts(opts))
        for page in PAGES:
            text = page.read_text("utf-8")
            found.update(dict.fromkeys(of_commands(scheduler, text)))
            if f"torchx run -s {scheduler}" in text:
                found.update(dict.fromkeys(of_text(opts, text)))
        yield from ((scheduler, example) for example in found)


@pytest.mark.gate
@pytest.mark.parametrize(("scheduler", "example"), list(examples()))
def test_example_of_an_option_is_valid(scheduler: str, example: str) -> None:
    _, literals = take_host(scheduler, [example])
    with get_runner() as runner:
        cfg = parse_cfg(runner, scheduler, literals, complete=lambda cfg: None)
        opts = runner.scheduler_run_opts(scheduler)
    assert cfg
    required = {key: "text" for key, option in opts if option.is_required}
    assert opts.resolve({**required, **cfg}).items() >= cfg.items()
