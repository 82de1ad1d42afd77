"""Tests that every implementation of ``torchx_kit.hosts.api.Host`` must pass.

Subclass :class:`HostConformance` in a test module and override the fixtures ``host`` and
``directory``.
"""

from __future__ import annotations

import posixpath
import stat
import threading
from pathlib import Path

import pytest

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import (
    CommandNotFoundError,
    CommandTimeoutError,
    HostError,
    HostFileError,
)
from torchx_specs.errors import BackendError


class HostConformance:
    """Tests of one implementation; the host needs ``sh`` and the usual POSIX commands."""

    @pytest.fixture
    def host(self) -> Host:
        raise NotImplementedError

    @pytest.fixture
    def directory(self) -> str:
        """Return the absolute path of an empty directory of the host."""
        raise NotImplementedError

    def test_run_returns_output_and_exit_code(self, host: Host) -> None:
        result = host.run(["sh", "-c", "printf 'out \\377'; printf err >&2; exit 3"])
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out \udcff", "err")

    @pytest.mark.parametrize("argument", ["", " ", "it's", "$HOME `id` \\", "a\nb", "caf\xe9", "*"])
    def test_run_passes_arguments_unchanged(self, host: Host, argument: str) -> None:
        assert host.run(["printf", "%s", argument, "--"]).stdout == f"{argument}--"

    def test_run_removes_variables_from_the_environment(self, host: Host) -> None:
        show = 'echo "${HOME-unset}" "${PATH:+path}"'
        assert host.run(["sh", "-c", show], env={"HOME": None}).stdout == "unset path\n"

    def test_run_adds_variables_to_the_environment(self, host: Host) -> None:
        result = host.run(["sh", "-c", 'echo "$MORE" "${PATH:+path}"'], env={"MORE": "it's 1"})
        assert result.stdout == "it's 1 path\n"

    def test_run_passes_standard_input(self, host: Host) -> None:
        assert host.run(["cat"], stdin=b"a\nb").stdout == "a\nb"
        assert host.run(["cat"]).stdout == ""

    def test_run_reports_a_missing_command(self, host: Host) -> None:
        with pytest.raises(CommandNotFoundError, match="torchx-no-such-command"):
            host.run(["torchx-no-such-command"])

    def test_run_reports_a_file_that_cannot_be_executed(self, host: Host, directory: str) -> None:
        path = posixpath.join(directory, "program")
        host.write(path, "")
        with pytest.raises(HostError, match="program"):
            host.run([path])

    def test_run_ends_at_its_time_limit(self, host: Host) -> None:
        with pytest.raises(CommandTimeoutError, match="sleep"):
            host.run(["sleep", "infinity"], timeout=0.2)

    def test_user_is_the_user_of_commands(self, host: Host) -> None:
        named = host.run(["id", "-un"])
        user = named if named.exit_code == 0 else host.run(["id", "-u"])
        assert host.user() == user.stdout.strip()

    def test_resolve_returns_absolute_paths(self, host: Host) -> None:
        home = host.run(["sh", "-c", "cd ~ && pwd"]).stdout.strip()
        here = host.run(["pwd"]).stdout.strip()
        assert host.resolve("/a/../b") == "/b"
        assert host.resolve("~/x") == posixpath.join(home, "x")
        assert host.resolve() == here
        assert host.resolve("x") == posixpath.join(here, "x")

    def test_written_files_are_read_back(self, host: Host, directory: str) -> None:
        path = posixpath.join(directory, "it's a file")
        host.write(path, "caf\xe9 \udcff\n")
        assert host.read(path) == b"caf\xc3\xa9 \xff\n"
        assert host.read_text(path) == "caf\xe9 \udcff\n"
        host.write(path, b"\0\r\n")
        assert host.read(path) == b"\0\r\n"
        assert host.list(directory) == ["it's a file"]

    def test_mode_of_written_files(self, host: Host, directory: str) -> None:
        for mode in (0o600, 0o700):
            path = posixpath.join(directory, f"{mode:o}")
            host.write(path, "", mode)
            assert host.run(["ls", "-l", path]).stdout.startswith(stat.filemode(mode | 0o100000))

    def test_missing_files_are_reported(self, host: Host, directory: str) -> None:
        path = posixpath.join(directory, "missing")
        assert not host.exists(path)
        for action in (host.read, host.list, lambda path: host.write(f"{path}/file", "")):
            with pytest.raises(HostFileError, match="missing"):
                action(path)
        with pytest.raises(BackendError, match="missing"):
            list(host.read_lines(path))

    def test_other_errors_of_files_are_reported(self, host: Host, directory: str) -> None:
        path = posixpath.join(directory, "file")
        host.write(path, "")
        below = posixpath.join(path, "below")
        for action in (host.list, lambda path: host.make_dirs(f"{path}/below")):
            with pytest.raises(HostFileError, match="file"):
                action(path)
        with pytest.raises(HostFileError, match="below"):
            host.read(below)
        with pytest.raises(HostFileError):
            host.read(directory)

    def test_directories_are_made_listed_and_removed(self, host: Host, directory: str) -> None:
        top = posixpath.join(directory, "top")
        inner = posixpath.join(top, "middle", "inner")
        host.make_dirs(inner, 0o700)
        host.make_dirs(inner)
        assert host.exists(inner)
        assert host.run(["ls", "-ld", inner]).stdout.startswith("drwx------")
        host.write(posixpath.join(inner, "b"), "")
        host.write(posixpath.join(inner, "a"), "")
        assert host.list(inner) == ["a", "b"]
        host.remove_empty_dir(inner)
        assert host.exists(inner)
        host.remove_files([posixpath.join(inner, name) for name in ("a", "missing")])
        assert host.list(inner) == ["b"]
        host.remove_tree(inner)
        host.remove_tree(inner)
        assert not host.exists(inner)
        host.remove_empty_dir(posixpath.dirname(inner))
        host.remove_empty_dir(posixpath.dirname(inner))
        assert host.list(top) == []

    def test_put_copies_a_directory(self, host: Host, directory: str, tmp_path: Path) -> None:
        source = tmp_path / "tree"
        (source / "below").mkdir(parents=True)
        (source / "below" / "file").write_text("new")
        target = posixpath.join(directory, "copy")
        host.make_dirs(posixpath.join(target, "below"))
        host.write(posixpath.join(target, "below", "file"), "old")
        host.write(posixpath.join(target, "other"), "stays")
        host.put(str(source), target)
        assert host.list(target) == ["below", "other"]
        assert host.read(posixpath.join(target, "below", "file")) == b"new"
        assert host.run(["ls", "-l", target + "/below"]).stdout.count("-rw-------") == 1

    def test_lines_are_whole(self, host: Host, directory: str) -> None:
        path = posixpath.join(directory, "log")
        host.write(path, b"one\r\n\ntwo \xff\nrest")
        assert list(host.read_lines(path)) == ["one\r\n", "\n", "two \ufffd\n", "rest"]

    def test_follow_yields_lines_until_the_end(self, host: Host, directory: str) -> None:
        out, err = (posixpath.join(directory, name) for name in ("out", "err"))
        finished = posixpath.join(directory, "finished")
        script = (
            'printf one; sleep 0.2; echo " line"; echo error >&2; sleep 0.2; printf two;'
            f' touch "{finished}"'
        )
        command = ["sh", "-c", f'sleep 0.1; exec >>"{out}" 2>>"{err}"; {script}']
        writer = threading.Thread(target=host.run, args=(command,))
        writer.start()
        lines = list(
            host.follow([out, err], lambda: host.exists(finished), watch=[out], check_every=0.1)
        )
        writer.join()
        assert sorted(lines) == ["error\n", "one line\n", "two\n"]
        assert list(host.follow([out], lambda: True)) == ["one line\n", "two"]

    def test_follow_ends_without_a_file(self, host: Host, directory: str) -> None:
        path = posixpath.join(directory, "missing")
        assert list(host.follow([path], lambda: True)) == []

    def test_follow_raises_the_error_of_its_condition(self, host: Host, directory: str) -> None:
        def fail() -> bool:
            raise BackendError("no answer")

        with pytest.raises(BackendError, match="no answer"):
            list(host.follow([posixpath.join(directory, "log")], fail))
