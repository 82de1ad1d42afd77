"""Tests of completion in bash, zsh and fish on a terminal, and of what an answer imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
# A shell function replaces the command `torchx`, and prints the arguments of the completed line.
# bash and zsh also start the completion by this name; the function then runs the real command.
FUNCTIONS = {
    "bash": (
        'torchx() { if [ -n "$_TORCHX_COMPLETE" ]; then command torchx "$@"; else'
        " printf 'GOT'; printf '<%s>' \"$@\"; echo; fi; }\n"
    ),
    "fish": ("function torchx; printf 'GOT'; printf '<%s>' $argv; echo; end\n"),
}
FUNCTIONS["zsh"] = FUNCTIONS["bash"] + "autoload -U compinit; compinit -u -D\n"
INSTALL = {
    "bash": 'eval "$(_TORCHX_COMPLETE=bash_source command torchx)"',
    "zsh": 'eval "$(_TORCHX_COMPLETE=zsh_source command torchx)"',
    "fish": "env _TORCHX_COMPLETE=fish_source torchx | source",
}

TRAIN = '''
import enum
from typing import Literal
from torchx_specs import AppDef
import a_module_that_is_missing


class Color(enum.Enum):
    red = 1
    green = 2


def main(script: str, mode: Literal["fast", "slow"], color: Color, debug: bool = False) -> AppDef:
    """A component."""


def other(*args: str) -> AppDef:
    """Another component."""
'''


class Shell(Terminal):
    """An interactive shell with the completion installed."""

    def send(self, text: str) -> None:
        os.write(self._main, text.encode())

    def complete(self, line: str) -> list[str]:
        """Type a line, TAB and Enter; return the arguments that ``torchx`` gets."""
        before = self.shown.count("GOT<")
        self.send(f"torchx {line}\t")
        self.send("\r")
        while self.shown.count("GOT<") == before:
            assert self._read(60), self.shown
        while not self.shown.rpartition("GOT<")[2].partition("\n")[1]:
            assert self._read(60), self.shown
        return self.shown.rpartition("GOT<")[2].partition(">\n")[0].split("><")


@pytest.fixture(params=sorted(SHELLS))
def shell(
    request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path
) -> Iterator[Shell]:
    """Yield a shell in a folder with components, files and a configuration."""
    name: str = request.param
    if shutil.which(name) is None and not os.environ.get("CI"):
        pytest.skip(f"{name} is not installed; run integration/install.sh terminal")
    folder = tmp_path / "work"
    (folder / "subfolder").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "my data.txt").write_text("")
    (folder / ".torchxconfig").write_text("[profile.big.slurm]\npartition = p\n")
    setup = tmp_path / f"setup.{name}"
    setup.write_text(f"{FUNCTIONS[name]}\n{INSTALL[name]}\n")
    variables = {**environment, "TERM": "xterm", "PS1": "ready> ", "LC_ALL": "C.UTF-8"}
    if name == "fish":  # the completion runs `env … torchx`, which ignores the function
        setup.write_text(f"{INSTALL[name]}\n{FUNCTIONS[name]}\n")
    # fish needs a controlling terminal.
    command = ["setsid", "--wait", "--ctty", *SHELLS[name]]
    with Shell(command, variables, str(folder)) as started:
        started.send(f"source {setup}; echo SET''UP\r")
        started.expect("SETUP\n")
        yield started


CASES = {
    "stat": ["status"],
    "run -s slu": ["run", "-s", "slurm"],
    "run -s slurm -cfg parti": ["run", "-s", "slurm", "-cfg", "partition="],
    "run -s slurm -cfg partition=a,accou": [
        *("run", "-s", "slurm", "-cfg"),
        "partition=a,account=",
    ],
    "run dist.d": ["run", "dist.ddp"],
    "run train": ["run", "train.py"],
    "run train.py:ma": ["run", "train.py:main"],
    "run ./train.py:oth": ["run", "./train.py:other"],
    "run train.py:main --mo": ["run", "train.py:main", "--mode"],
    "run train.py:main --mode f": ["run", "train.py:main", "--mode", "fast"],
    "run train.py:main --color=g": ["run", "train.py:main", "--color=green"],
    "run train.py:main --no": ["run", "train.py:main", "--no-debug"],
    "run train.py:main --script tr": ["run", "train.py:main", "--script", "train.py"],
    "run train.py:main --script my": ["run", "train.py:main", "--script", "my data.txt"],
    "run train.py:other x sub": ["run", "train.py:other", "x", "subfolder/"],
    "run --workspace su": ["run", "--workspace", "subfolder/"],
    "list --state RUN": ["list", "--state", "RUNNING"],
    "--profile b": ["--profile", "big"],
    # If no completion is valid, nothing is added.
    "run train.py:main --sched": ["run", "train.py:main", "--sched"],
    "run -s slurm --schedulerx": ["run", "-s", "slurm", "--schedulerx"],
    "run --mx": ["run", "--mx"],
}


def test_tab_completes_a_line(shell: Shell) -> None:
    found = {line: shell.complete(line) for line in CASES}
    # zsh removes the slash after a directory when Enter is pressed.
    expected = {
        line: [word.rstrip("/") if "subfolder/" in word else word for word in words]
        for line, words in CASES.items()
    }
    assert {line: [word.rstrip("/") for word in words] for line, words in found.items()} == expected


def test_handles_come_from_the_journal(
    shell: Shell, environment: dict[str, str], tmp_path: Path
) -> None:
    ran = subprocess.run(
        [Path(sys.prefix) / "bin" / "torchx", "run", "-s", "local_cwd", "utils.echo"],
        env=environment,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    handle = ran.stdout.strip()
    assert shell.complete("status local_cwd://to") == ["status", handle]
    assert shell.complete("log ech") == ["log", "echo"]


def test_an_answer_imports_little_more_than_the_start_of_the_command(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Compare the imported modules with those of ``torchx --help``: a back end's library has many.

    ``torchx --help`` imports 130 modules, and a completion 155 to 240.
    """
    (tmp_path / "train.py").write_text(TRAIN)

    def imports(words: list[str], **variables: str) -> int:
        done = subprocess.run(
            [Path(sys.prefix) / "bin" / "torchx", *words],
            env={**environment, **variables, "PYTHONPROFILEIMPORTTIME": "1"},
            cwd=tmp_path,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return done.stderr.count("import time:")

    lines = [
        ["run", "dist.d"],
        ["run", "train.py:main", "--mode", ""],
        ["run", "-s", "slurm", "-cfg", "par"],
        ["status", ""],
    ]
    found = {" ".join(line): imports(line, _TORCHX_COMPLETE="zsh") for line in lines}
    assert max(found.values()) < 2 * imports(["--help"]), found
