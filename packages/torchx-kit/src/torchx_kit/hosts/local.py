"""The machine on which TorchX runs, as a host."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torchx_kit.atomic_files import write_atomically
from torchx_kit.hosts.api import CommandResult, Host
from torchx_kit.hosts.errors import (
    CommandNotFoundError,
    CommandTimeoutError,
    HostError,
    HostFileError,
    HostFileNotFoundError,
)

if TYPE_CHECKING:
    from torchx_specs.schedulers.closing import Closing


class LocalHost(Host):
    """This machine as a host; see :class:`Host` for the methods."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        # Imported here, so that dry runs and start-up do not load the module.
        import subprocess

        name = argv[0]
        try:
            done = subprocess.run(
                argv,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                timeout=timeout,
                check=False,
                env=_environment(env) if env else None,
            )
        except FileNotFoundError:
            raise CommandNotFoundError(f"there is no command {name} on PATH", name) from None
        except OSError as e:
            raise HostError(f"cannot run {name}: {e.strerror or e}") from None
        except subprocess.TimeoutExpired as e:
            text = " ".join((e.stderr or b"").decode("utf-8", "replace").split())
            raise CommandTimeoutError(
                f"{name} did not end within {timeout:g} s{': ' * bool(text)}{text}"
            ) from None
        return CommandResult(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    def attached_command(self, argv: Sequence[str], *, tty: bool) -> list[str]:
        return list(argv)

    def variable_names(self) -> list[str]:
        return list(os.environ)

    def user(self) -> str:
        try:
            return pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            return str(os.getuid())

    def resolve(self, path: str = "") -> str:
        return os.path.abspath(os.path.expanduser(path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        with _file_errors("read", path), open(path, "rb") as file:
            return file.read(limit)

    def write(self, path: str, data: str | bytes, mode: int = 0o600) -> None:
        with _file_errors("write", path):
            write_atomically(path, data, mode)

    def list(self, path: str) -> list[str]:
        with _file_errors("list", path):
            return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def make_dirs(self, path: str, mode: int = 0o777) -> None:
        with _file_errors("create directory", path):
            os.makedirs(path, mode, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            with _file_errors("remove", path):
                shutil.rmtree(path)  # raises the error that the first call ignored

    def remove_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            with _file_errors("remove", path), contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def remove_empty_dir(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(path)

    def put(self, local: str, remote: str) -> None:
        import shutil

        os.lstat(local)
        with _file_errors("write", remote):
            if os.path.isdir(local):
                shutil.copytree(
                    local, remote, symlinks=True, copy_function=_copy_file, dirs_exist_ok=True
                )
            else:
                _copy_file(local, remote)

    def read_lines(self, path: str, last: int | None = None) -> Iterator[str]:
        from torchx_kit.logs.file_logs import log_lines

        return log_lines(path, last=last)

    def follow(
        self,
        paths: Sequence[str],
        is_finished: Callable[[], bool],
        *,
        watch: Sequence[str] = (),
        check_every: float = 2.0,
        last: int | None = None,
        partial: bool = False,
        closing: Closing | None = None,
    ) -> Iterator[str]:
        from torchx_kit.logs.file_logs import Tail, follow_files

        tail = Tail(is_finished, watch, check_every, partial=partial, closing=closing)
        return follow_files(paths, tail, last)


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


@contextlib.contextmanager
def _file_errors(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as e:
        raise HostFileNotFoundError(f"cannot {action} {path}: {e.strerror or e}") from None
    except OSError as e:
        raise HostFileError(f"cannot {action} {path}: {e.strerror or e}") from None


def _copy_file(source: str, target: str) -> str:
    """Copy a file atomically: write the copy under a temporary name, then rename it."""
    import shutil

    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.partial")
    try:
        shutil.copy2(source, partial, follow_symlinks=False)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    return target
