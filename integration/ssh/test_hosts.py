"""The conformance suite of hosts, with this machine and with users of different shells."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_conformance import HostConformance

from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.local import LocalHost
from torchx_kit.hosts.operations import MakeDirs, ReadFiles, Run, Write
from torchx_testing.hostile import HOSTILE_VALUES

VALUES = [one.text for one in HOSTILE_VALUES if "\0" not in one.text]


class Suite(HostConformance):
    """The suite, and the cases that need several distributions."""

    @pytest.mark.gate
    def test_hostile_values_survive(self, host: Host, directory: str) -> None:
        shown = host.run(["printf", "%s|", "", *VALUES]).stdout
        assert shown == "".join(f"{value}|" for value in ["", *VALUES])
        env = {f"V{k}": value for k, value in enumerate(VALUES)}
        code = f"import os; print(ascii([os.environb[b'V%d' % k] for k in range({len(VALUES)})]))"
        found = host.run(["python3", "-c", code], env=env).stdout
        assert found == ascii([value.encode("utf-8", "surrogateescape") for value in VALUES]) + "\n"
        for k, value in enumerate(VALUES):
            name = f"{k}{value.replace('/', '')[:50]}"
            host.write(f"{directory}/{name}", value)
            assert host.read_text(f"{directory}/{name}") == value
            assert name in host.list(directory)

    @pytest.mark.gate
    def test_a_batch_is_executed_up_to_a_failed_command(self, host: Host, directory: str) -> None:
        folder = f"{directory}/a/b"
        results = host.batch(
            [
                MakeDirs(folder, 0o700),
                Write(f"{folder}/one", "1"),
                Run(["cat", f"{folder}/one"]),
                ReadFiles(folder, ["on*"]),
                Run(["sh", "-c", "exit 3"]),
                Write(f"{folder}/two", "2"),
            ]
        )
        assert [type(one).__name__ for one in results] == [
            *("NoneType", "NoneType", "CommandResult", "dict", "CommandResult")
        ]
        assert results[3] == {"one": b"1"}
        assert host.list(folder) == ["one"]

    def test_threads_share_a_host(self, host: Host) -> None:
        found: dict[int, str] = {}

        def run(k: int) -> None:
            found[k] = host.run(["sh", "-c", f"sleep 0.0{k % 7}; echo {k}"]).stdout

        threads = [threading.Thread(target=run, args=(k,)) for k in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {k: f"{k}\n" for k in range(20)}

    def test_an_attached_command_gets_its_arguments_unchanged(self, host: Host) -> None:
        # One argument of ssh has the whole command, and may have 128 KiB.
        values = [value for value in VALUES if len(value) < 1000]
        argv = host.attached_command(["printf", "%s|", "", *values], tty=False)
        done = subprocess.run(argv, input=b"", capture_output=True, check=True)
        expected = "".join(f"{value}|" for value in ["", *values])
        assert done.stdout.endswith(expected.encode("utf-8", "surrogateescape"))

    def test_last_and_partial_lines_are_followed(self, host: Host, directory: str) -> None:
        host.write(f"{directory}/log", "1\n2\n3\nbegin")
        finished: list[bool] = []
        lines = host.follow(
            [f"{directory}/log"], lambda: bool(finished), check_every=0.1, last=2, partial=True
        )
        assert [next(lines), next(lines)] == ["3\n", "begin"]
        host.run(["sh", "-c", 'printf " end\\n" >> "$1"', "sh", f"{directory}/log"])
        assert next(lines) == " end\n"
        finished.append(True)
        assert list(lines) == []


class TestThisMachine(Suite):
    @pytest.fixture
    def host(self) -> LocalHost:
        return LocalHost()

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        path = tmp_path / "on the host"
        path.mkdir()
        return str(path)


class SshSuite(Suite):
    shell = ""

    @pytest.fixture(scope="class")
    @classmethod
    def host(cls, machines: Path, client: None) -> Iterator[SshHost]:
        host = SshHost(cls.shell)
        yield host
        host.close()
        host.ssh.disconnect()

    @pytest.fixture
    def directory(self, host: SshHost) -> Iterator[str]:
        path = host.resolve(f"it's {os.urandom(4).hex()}")
        host.make_dirs(path)
        yield path
        host.remove_tree(path)


class TestBash(SshSuite):
    shell = "bash"


class TestZsh(SshSuite):
    shell = "zsh"


class TestFish(SshSuite):
    shell = "fish"


class TestTcsh(SshSuite):
    shell = "tcsh"
