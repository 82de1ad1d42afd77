"""Tests of the host with a double of ssh, which starts the helper program on this machine.

The conformance suite of hosts runs in integration/ssh, with OpenSSH's server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patience import wait_for
from torchx_host_ssh.channel import ConnectionLostError
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts import api
from torchx_kit.hosts.errors import (
    CommandNotFoundError,
    CommandTimeoutError,
    HostError,
    HostFileError,
    HostUnreachableError,
)
from torchx_kit.hosts.operations import MakeDirs, ReadFiles, Run, Write, as_request
from torchx_specs.schedulers.closing import Closing


def break_connection(host: SshHost) -> None:
    """Kill the program that holds the connection, and wait until the client has noticed it."""
    connection = host._channel.connection()
    os.kill(connection._process.pid, signal.SIGKILL)
    connection._thread.join()


class TestRequests:
    def test_one_request_executes_a_batch(self, host: SshHost, tmp_path: Path) -> None:
        folder = str(tmp_path / "new" / "folder")
        results = host.batch(
            [
                MakeDirs(folder, 0o700),
                Write(f"{folder}/a.txt", "caf\xe9 \udcff"),
                Run(["cat", f"{folder}/a.txt"]),
                ReadFiles(folder, ["*.txt"]),
                Run(["sh", "-c", "exit 3"]),
                Write(f"{folder}/b.txt", ""),
            ]
        )
        assert results[:2] == [None, None]
        assert getattr(results[2], "stdout", "") == "caf\xe9 \udcff"
        assert results[3] == {"a.txt": b"caf\xc3\xa9 \xff"}
        assert getattr(results[4], "exit_code", 0) == 3
        assert len(results) == 5
        assert host.list(folder) == ["a.txt"]

    def test_files_of_a_folder_are_read(self, host: SshHost, tmp_path: Path) -> None:
        (tmp_path / "replica-0").write_bytes(b"012345")
        (tmp_path / "replica-1").write_bytes(b"\0")
        (tmp_path / "replica-2").mkdir()
        (tmp_path / "other").write_bytes(b"")
        wanted = ReadFiles(str(tmp_path), ["replica-*"], limit=3)
        assert host.batch([wanted]) == [{"replica-0": b"012", "replica-1": b"\0"}]

    def test_requests_do_not_wait_for_each_other(self, host: SshHost, tmp_path: Path) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        found: list[str] = []
        reader = threading.Thread(target=lambda: found.append(host.run(["cat", str(fifo)]).stdout))
        reader.start()
        host.run(["sh", "-c", f"echo text > '{fifo}'"])
        reader.join()
        assert found == ["text\n"]

    def test_a_time_limit_ends_all_processes_of_a_command(self, host: SshHost) -> None:
        with pytest.raises(CommandTimeoutError, match=r"sh did not end within 0\.5 s: begun"):
            host.run(["sh", "-c", "echo begun >&2; sleep infinity & wait"], timeout=0.5)

    def test_large_files_are_copied_in_parts(
        self, host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(api, "_REQUEST_BYTES", 1000)
        source = tmp_path / "source"
        source.mkdir()
        (source / "large").write_bytes(os.urandom(3500))
        (source / "exact").write_bytes(os.urandom(2000))
        (source / "empty").write_bytes(b"")
        host.put(str(source), str(tmp_path / "copy"))
        for file in source.iterdir():
            assert (tmp_path / "copy" / file.name).read_bytes() == file.read_bytes()
        assert len(list((tmp_path / "copy").iterdir())) == 3

    def test_an_attached_command_gets_its_arguments_unchanged(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        arguments = ["it's", "", "$HOME `id`", "a\nb", "!!", "\\'", "caf\xe9 \udcff", "-x"]
        argv = host.attached_command(["printf", "%s|", *arguments], tty=False)
        done = subprocess.run(argv, capture_output=True, check=True)
        assert done.stdout.decode("utf-8", "surrogateescape") == "".join(
            f"{one}|" for one in arguments
        )


class TestRequestsThatAreSentAgain:
    """A request with a file that identifies it executes no command twice."""

    @pytest.fixture
    def once(self, tmp_path: Path) -> str:
        return str(tmp_path / "new" / "record" / "submission")

    def test_the_second_one_gets_the_results_of_the_first(
        self, connect: Callable[[], SshHost], tmp_path: Path, once: str
    ) -> None:
        operations = [
            Write(f"{tmp_path}/a", "text"),
            Run(["sh", "-c", 'echo run >> "$1"; echo output', "sh", f"{tmp_path}/runs"]),
            ReadFiles(str(tmp_path), ["a"]),
            Run(["sh", "-c", "exit 3"]),
        ]
        first = connect().batch(operations, once=once)
        assert connect().batch(operations, once=once) == first
        assert (tmp_path / "runs").read_text() == "run\n"
        assert os.stat(once).st_mode & 0o777 == 0o600
        assert os.stat(os.path.dirname(once)).st_mode & 0o777 == 0o700

    def test_the_second_one_gets_the_error_of_the_first(self, host: SshHost, once: str) -> None:
        for _ in range(2):
            with pytest.raises(CommandNotFoundError, match="no-such-command") as caught:
                host.batch([Run(["no-such-command"])], once=once)
            assert str(caught.value) == "there is no command no-such-command on PATH"

    def test_a_command_ends_without_its_client_and_the_next_request_continues(
        self, connect: Callable[[], SshHost], tmp_path: Path, once: str
    ) -> None:
        script = 'echo $2 >> "$1"; while [ $2 = 1 ] && [ ! -e "$1.go" ]; do sleep 0.01; done'
        runs = tmp_path / "runs"
        operations = [Run(["sh", "-c", script, "sh", str(runs), str(k)]) for k in (1, 2)]
        first = connect()
        future = first._channel.connection().send(
            "batch", [as_request(one) for one in operations], once
        )
        wait_for(runs.exists)
        first._channel.connection()._stdin.close()
        again: list[object] = []
        thread = threading.Thread(
            target=lambda: again.extend(connect().batch(operations, once=once))
        )
        thread.start()
        (tmp_path / "runs.go").touch()
        thread.join()
        assert "the client has ended" in str(future.exception())
        assert len(again) == 2
        assert runs.read_text() == "1\n2\n"

    def test_an_interrupted_command_is_awaited_and_not_repeated(
        self, double: Path, host: SshHost, tmp_path: Path, once: str
    ) -> None:
        # The command kills the helper program, and goes on.
        script = 'kill -KILL $PPID; while [ ! -e "$1.go" ]; do sleep 0.01; done; echo >> "$1"'
        operations = [Run(["sh", "-c", script, "sh", str(tmp_path / "runs")])]
        calls = double / "calls"

        def continue_after_the_second_start() -> None:
            wait_for(lambda: calls.exists() and calls.read_text().count("python3") == 2)
            (tmp_path / "runs.go").touch()

        thread = threading.Thread(target=continue_after_the_second_start)
        thread.start()
        with pytest.raises(CommandTimeoutError, match="whether it had an effect is unknown"):
            host.batch(operations, once=once)
        thread.join()
        assert (tmp_path / "runs").read_text() == "\n"

    def test_an_incomplete_entry_is_as_none(self, host: SshHost, once: str) -> None:
        operations = [Run(["echo", "text"])]
        first = host.batch(operations, once=once)
        with open(once, "ab") as file:
            file.write(b"\0" * 9)
        assert host.batch([*operations, *operations], once=once) == [*first, *first]


class TestConnections:
    def test_output_of_start_up_files_is_skipped(self, double: Path, host: SshHost) -> None:
        (double / "noise").write_bytes(b"Welcome!\n\xff\0 torchx-\nno newline")
        assert host.run(["echo", "answer"]).stdout == "answer\n"

    def test_a_host_without_python_is_an_error(self, double: Path, host: SshHost) -> None:
        (double / "path").write_text("/nowhere")
        with pytest.raises(HostError, match="login1 has no command python3: install") as caught:
            host.user()
        assert not isinstance(caught.value, HostUnreachableError)

    def test_a_python_that_fails_is_an_error(self, double: Path, host: SshHost) -> None:
        python = double / "python3"
        python.write_text("#!/bin/sh\necho 'cannot load libpython' >&2; exit 1\n")
        python.chmod(0o755)
        with pytest.raises(HostError, match="exit code 1: cannot load libpython"):
            host.user()

    def test_one_client_has_one_channel(self, double: Path, host: SshHost) -> None:
        threads = [threading.Thread(target=host.exists, args=("/",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (double / "calls").read_text().count("exec python3") == 1

    def test_no_process_is_left_after_closing(self, host: SshHost) -> None:
        pid = host.run(["sh", "-c", "echo $PPID"]).stdout.strip()
        process = host._channel.connection()._process
        host.close()
        assert process.returncode is not None
        assert host.run(["sh", "-c", "echo $PPID"]).stdout.strip() != pid

    def test_a_forked_process_opens_its_own_channel(
        self, host: SshHost, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connection = host._channel.connection()
        monkeypatch.setattr(connection, "_pid", -1)
        assert host._channel.connection() is not connection
        monkeypatch.undo()
        connection.close()


class TestBrokenConnections:
    def test_the_next_request_connects_again(self, host: SshHost) -> None:
        assert host.run(["echo", "1"]).stdout == "1\n"
        break_connection(host)
        assert host.run(["echo", "2"]).stdout == "2\n"

    def test_a_command_is_not_repeated(self, host: SshHost, tmp_path: Path) -> None:
        begun = tmp_path / "begun"
        os.mkfifo(begun)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                host.run(["sh", "-c", f"echo >> '{tmp_path}/runs'; echo > '{begun}'; sleep 60"])
            except HostUnreachableError as e:
                errors.append(e)

        thread = threading.Thread(target=run)
        host.user()
        thread.start()
        begun.read_text()
        break_connection(host)
        thread.join()
        assert "the connection to login1 broke" in str(errors[0])
        assert (tmp_path / "runs").read_text() == "\n"

    def test_a_safe_request_is_repeated(
        self, host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connection = host._channel.connection()
        send = connection.send

        def break_and_send(name: str, *arguments: object) -> object:
            break_connection(host)
            return send(name, *arguments)

        monkeypatch.setattr(connection, "send", break_and_send)
        (tmp_path / "file").write_text("text")
        assert host.read_text(str(tmp_path / "file")) == "text"

    def test_an_answer_that_is_no_frame_breaks_the_connection(self, host: SshHost) -> None:
        # The helper program's standard output is the connection.
        with pytest.raises(ConnectionLostError):
            host.run(["sh", "-c", "echo garbage garbage garbage > /proc/$PPID/fd/1; sleep 60"])
        assert host.run(["echo", "next"]).stdout == "next\n"


@pytest.mark.parametrize(
    ("messages", "text", "is_permanent"),
    [
        (
            "user@login1: Permission denied (publickey).",
            r"login1: user@login1: Permission denied \(publickey\)",
            True,
        ),
        (
            (
                "@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@\n"
                "Offending key in /home/u/known_hosts:1\r\nHost key verification failed.\r\n"
            ),
            "HAS CHANGED! .*known_hosts:1 Host key verification failed",
            True,
        ),
        ("ssh: Could not resolve hostname login1: Name or service not known\r\n", "resolve", True),
        (
            "ssh: Could not resolve hostname login1: Temporary failure in name resolution",
            "Temporary",
            False,
        ),
        ("ssh: connect to host login1 port 22: Connection refused\r\n", "refused", False),
        ("kex_exchange_identification: Connection closed by remote host\r\n", "closed by", False),
        ("", "login1: ssh ended without a message", False),
    ],
)
def test_messages_of_ssh_become_errors(
    double: Path, host: SshHost, messages: str, text: str, is_permanent: bool
) -> None:
    (double / "fails").write_text(messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchx_host_ssh.openssh.has_terminal", lambda: False)
        with pytest.raises(HostError, match=text) as caught:
            host.run(["true"])
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, HostUnreachableError) is not is_permanent


def test_ssh_may_ask_only_a_user_at_a_terminal(
    double: Path, host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    (double / "fails").write_text("Permission denied (publickey,keyboard-interactive).")
    for has_terminal in (False, True):
        monkeypatch.setattr("torchx_host_ssh.openssh.has_terminal", lambda x=has_terminal: x)
        with pytest.raises(HostError, match="Permission denied"):
            host.run(["true"])
    calls = [line for line in (double / "calls").read_text().splitlines() if "-fNT" in line]
    assert ["BatchMode=yes" in call for call in calls] == [True, True, False]


def test_a_changed_host_key_is_never_asked_about(
    double: Path, host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    (double / "fails").write_text(
        "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed."
    )
    monkeypatch.setattr("torchx_host_ssh.openssh.has_terminal", lambda: True)
    with pytest.raises(HostError, match="HAS CHANGED"):
        host.run(["true"])
    assert (double / "calls").read_text().count("-fNT") == 1


class TestLogs:
    def follow(self, host: SshHost, path: Path, finished: Path, **options: object) -> Iterator[str]:
        return host.follow(
            [str(path)],
            finished.exists,
            watch=[str(finished)],
            check_every=60,
            **options,  # type: ignore[arg-type]
        )

    def test_a_followed_log_survives_broken_connections(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        log, finished = tmp_path / "log", tmp_path / "finished"
        lines = self.follow(host, log, finished)
        found = []
        with open(log, "ab", buffering=0) as file:
            for k in range(5):
                file.write(b"line %d\nbegin" % k)
                found.append(next(lines))
                break_connection(host)
                file.write(b" and end of %d\n" % k)
                found.append(next(lines))
            file.write(b"rest")
        finished.touch()
        found += lines
        expected = [f"line {k}\nbegin and end of {k}\n" for k in range(5)]
        assert "".join(found) == "".join(expected) + "rest"

    def test_a_large_log_is_read_whole_and_backwards(self, host: SshHost, tmp_path: Path) -> None:
        log = tmp_path / "log"
        text = "".join(f"line {k}\n" for k in range(200_000))
        log.write_text(f"{text}rest")
        assert "".join(host.read_lines(str(log))) == f"{text}rest"
        assert list(host.read_lines(str(log), 2)) == ["line 199999\n", "rest"]
        assert len(list(host.read_lines(str(log), 30_000))) == 30_000
        assert list(host.read_lines(str(log), 0)) == []

    def test_an_empty_log_has_no_lines(self, host: SshHost, tmp_path: Path) -> None:
        (tmp_path / "log").touch()
        assert list(host.read_lines(str(tmp_path / "log"))) == []

    def test_last_lines_of_several_files(self, host: SshHost, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("1\n2\n3\n")
        (tmp_path / "err").write_text("4\n5\n")
        paths = [str(tmp_path / name) for name in ("out", "missing", "err")]
        found = list(host.follow(paths, lambda: True, last=3))
        assert sorted(found) == ["3\n", "4\n", "5\n"]

    def test_a_truncated_and_a_replaced_log_begin_again(
        self, host: SshHost, tmp_path: Path
    ) -> None:
        log, finished = tmp_path / "log", tmp_path / "finished"
        log.write_text("first line\nsecond line\n")
        lines = self.follow(host, log, finished)
        assert [next(lines), next(lines)] == ["first line\n", "second line\n"]
        log.write_text("short\n")
        assert next(lines) == "short\n"
        (tmp_path / "new").write_text("new\n")
        os.replace(tmp_path / "new", log)
        assert next(lines) == "new\n"
        finished.touch()
        assert list(lines) == []

    @pytest.mark.parametrize("is_kept", [True, False], ids=["renamed", "deleted"])
    def test_unread_lines_of_a_replaced_log_come_first(
        self, host: SshHost, tmp_path: Path, is_kept: bool
    ) -> None:
        log, finished = tmp_path / "log", tmp_path / "finished"
        log.write_text("first\n")
        lines = self.follow(host, log, finished)
        found = [next(lines)]
        with open(log, "a") as file:
            file.write("second\n" * 300_000)  # more than the helper program returns at once
        found.append(next(lines))
        log.rename(tmp_path / "log.1") if is_kept else log.unlink()
        log.write_text("new\n" * 600_000)
        finished.touch()
        found += lines
        assert Counter(found) == {"first\n": 1, "second\n": 300_000, "new\n": 600_000}
        assert found[-1] == "new\n"

    def test_partial_lines_are_shown(self, host: SshHost, tmp_path: Path) -> None:
        log, finished = tmp_path / "log", tmp_path / "finished"
        log.write_text("begin")
        lines = self.follow(host, log, finished, partial=True)
        assert next(lines) == "begin"
        with open(log, "a") as file:
            file.write(" end\n")
        assert next(lines) == " end\n"
        finished.touch()
        assert list(lines) == []

    def test_a_folder_is_not_a_log(self, host: SshHost, tmp_path: Path) -> None:
        with pytest.raises(HostFileError, match="Is a directory"):
            list(host.follow([str(tmp_path)], lambda: False))

    def test_closing_ends_a_followed_log(self, host: SshHost, tmp_path: Path) -> None:
        closing = Closing()
        log = tmp_path / "log"
        log.write_text("line\n")
        lines = host.follow([str(log)], lambda: False, check_every=3600, closing=closing)
        assert next(lines) == "line\n"
        timer = threading.Timer(0.1, closing.set)
        timer.start()
        assert list(lines) == []
        timer.join()


def test_hosts_are_independent(connect: Callable[[], SshHost]) -> None:
    first, second = connect(), connect()
    first.user()
    second.user()
    first.close()
    assert second.run(["echo", "alive"]).stdout == "alive\n"
