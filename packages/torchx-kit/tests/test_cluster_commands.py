"""Calling a cluster's commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.hosts.commands import ClusterCommands
from torchx_specs.errors import BackendError


class Failed(BackendError):
    pass


class Unreachable(Failed):
    pass


class Commands(ClusterCommands):
    failed = Failed
    unreachable = Unreachable
    absent = "there is no {name}"


def test_what_comes_of_a_command() -> None:
    script = 'printf "out \\377"; printf err >&2; read -r line || printf "$MORE"; exit 3'
    done = Commands().call(["bash", "-c", script], variables={"MORE": " no input"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "out \udcff no input", "err")


def test_no_such_command(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"^there is no qsubmit$"):
        Commands().call(["qsubmit"])
    path = tmp_path / "qsubmit"
    path.write_text("")
    with pytest.raises(Failed, match=r"^cannot run .*qsubmit: Permission denied$"):
        Commands().call([str(path)])


def test_one_that_does_not_end() -> None:
    with pytest.raises(Unreachable, match=r"^sleep did not answer within 0.05 s$"):
        Commands(timeout=60).call(["sleep", "60"], timeout=0.05)


class TestAgain:
    def test_until_somebody_answers(self) -> None:
        slept: list[float] = []
        answers = iter([Unreachable("no"), Unreachable("no"), "yes"])

        def ask() -> str:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        assert Commands(sleep=slept.append).again_for_a_while(ask) == "yes"
        assert slept == [0.5, 1.0]

    def test_not_forever(self) -> None:
        def ask() -> str:
            raise Unreachable("no")

        with pytest.raises(Unreachable):
            Commands(patience=0.1, sleep=lambda seconds: None).again_for_a_while(ask)

    def test_other_failures_are_final(self) -> None:
        calls = []

        def ask() -> str:
            calls.append(1)
            raise Failed("wrong option")

        with pytest.raises(Failed, match="wrong option"):
            Commands().again_for_a_while(ask)
        assert calls == [1]
