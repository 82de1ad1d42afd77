"""The resume folder of a run: committed checkpoints, and the folders of attempts.

::

    RESUME_DIR/
        run                     the handle of the run that the folder belongs to
        step-200/               a committed checkpoint
        attempts/1.0/           the newest attempt: its number, and its restarts by torchrun
        attempts/1.0/step-300/  a checkpoint that is not yet committed
        attempts/1.0/KEY        the values of a board
        attempts/1.0/requeue    a rank ends to ask for another attempt

Two rules keep committed checkpoints whole:

- A checkpoint is committed by a rename of its folder, so a kill at any moment leaves it committed
  and whole, or not committed.
- An attempt that starts takes the folders of all older attempts away before it looks for the newest
  checkpoint. It first moves each uncommitted checkpoint away by a rename. If an old attempt still
  runs, either its own rename comes first and the checkpoint is found, or it fails. A later commit
  fails, because its attempt has no folder. No lease and no clock takes part.
"""

from __future__ import annotations

import os
import stat

from torchx_resilience.boards import write_file
from torchx_resilience.contract import ENV_RESUME_OWNER
from torchx_resilience.errors import CheckpointError, ResumeDirError, SupersededError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "step-"


def _identity(name: str) -> tuple[int, int]:
    """Return the number of an attempt and of its restart; (-1, 0) if the name is another one."""
    number, _, restart = name.partition(".")
    if number.isdecimal() and restart.isdecimal():
        return int(number), int(restart)
    return -1, 0


def _sync(path: str) -> None:
    """Write a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tree(folder: str) -> Iterator[str]:
    """Yield the regular files and the folders of a tree, each folder after its content."""
    for parent, _, files in os.walk(folder, topdown=False):
        paths = (os.path.join(parent, name) for name in files)
        yield from (path for path in paths if stat.S_ISREG(os.lstat(path).st_mode))
        yield parent


class ResumeFolder:
    """The resume folder as one attempt uses it.

    Args:
        path: The folder; it is created if it does not exist.

    Raises:
        ResumeDirError: The folder cannot be created, or is not a private folder of this user.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.attempts = os.path.join(self.path, "attempts")
        self.own = ""
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
            found = os.stat(self.path)
        except OSError as error:
            raise ResumeDirError(
                f"resume folder {self.path} cannot be used: {error.strerror}"
            ) from error
        owners = (str(os.geteuid()), "0", os.environ.get(ENV_RESUME_OWNER))
        if str(found.st_uid) not in owners:
            raise ResumeDirError(
                f"resume folder {self.path} belongs to user {found.st_uid}, but this process runs "
                f"as user {os.geteuid()}; choose a folder of your own"
            )
        if found.st_mode & 0o022:
            raise ResumeDirError(
                f"resume folder {self.path} can be written by other users (mode "
                f"{stat.S_IMODE(found.st_mode):04o}); run: chmod 700 {self.path}"
            )

    def check_run(self, run: str) -> None:
        """Check that the folder belongs to a run, or to none.

        Args:
            run: The handle of the run; empty if it is unknown, and then every folder is valid.

        Raises:
            ResumeDirError: The folder belongs to another run.
        """
        try:
            with open(os.path.join(self.path, "run"), encoding="utf-8") as file:
                owner = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise ResumeDirError(
                f"resume folder {self.path} cannot be read: {error.strerror}"
            ) from error
        if run and owner != run:
            raise ResumeDirError(
                f"resume folder {self.path} belongs to the run {owner}, but this is {run}; choose "
                f"another folder, or delete {self.path}/run to continue from its checkpoints"
            )

    def newest_attempt(self) -> tuple[int, int]:
        """Return the number of the newest attempt and of its restart; (-1, 0) without one."""
        try:
            return max(map(_identity, os.listdir(self.attempts)), default=(-1, 0))
        except FileNotFoundError:
            return -1, 0

    def begin(self, number: int, restart: int, run: str) -> None:
        """Begin an attempt; afterwards, no older attempt can commit a checkpoint.

        All ranks call this method, at any times.

        Args:
            number: The number of the attempt.
            restart: The number of the attempt's restart by torchrun.
            run: The handle of the run; empty if it is unknown.

        Raises:
            ResumeDirError: The folder cannot be written.
            SupersededError: A newer attempt has started.
        """
        self.check_run(run)
        self.own = os.path.join(self.attempts, f"{number}.{restart}")
        try:
            os.makedirs(self.attempts, 0o700, exist_ok=True)
            os.makedirs(self.own, 0o700, exist_ok=True)
            # The own folder comes before this look at the others. So of two attempts that start at
            # the same time, at least one sees the other.
            if self.newest_attempt() > (number, restart):
                self._remove(self.own)
            self.check_newest()
            for name in os.listdir(self.attempts):
                if _identity(name) < (number, restart):
                    self._remove(os.path.join(self.attempts, name))
            if run:
                write_file(os.path.join(self.path, "run"), run, self.own)
        except OSError as error:
            raise ResumeDirError(
                f"resume folder {self.path} cannot be written: {error.strerror}"
            ) from error

    def check_newest(self) -> None:
        """Check that no newer attempt has started.

        Raises:
            SupersededError: There is one.
        """
        name = os.path.basename(self.own)
        number, restart = self.newest_attempt()
        if (number, restart) > _identity(name):
            raise SupersededError(
                f"torchx_resilience: attempt {name} ends without a checkpoint, because the newer "
                f"attempt {number}.{restart} uses {self.path}"
            )

    def note_requeue(self) -> None:
        """Note that this rank ends to ask for another attempt.

        A launcher such as torchrun loses the exit code, and the scheduler then looks here.
        """
        try:
            write_file(os.path.join(self.own, "requeue"), "", self.own)
        except OSError:
            pass  # the exit code tells most schedulers the same

    def committed(self) -> list[int]:
        """Return the committed steps, in ascending order."""
        names = [name for name in os.listdir(self.path) if name.startswith(PREFIX)]
        steps = (name.removeprefix(PREFIX) for name in names)
        return sorted(int(step) for step in steps if step.isdecimal())

    def committed_path(self, step: int) -> str:
        """Return the folder of a committed checkpoint."""
        return os.path.join(self.path, f"{PREFIX}{step}")

    def create(self, step: int) -> str:
        """Create the folder of a checkpoint, unless it exists, and return its path.

        Raises:
            CheckpointError: The step is not newer than each committed step, or the folder cannot
                be created.
            SupersededError: A newer attempt has started.
        """
        self.check_newest()
        newest = max(self.committed(), default=-1)
        if step <= newest:
            raise CheckpointError(
                f"checkpoint of step {step}: the committed step {newest} in {self.path} is not "
                "older; start at resume_step + 1, or choose another folder for a new run"
            )
        path = os.path.join(self.own, f"{PREFIX}{step}")
        try:
            # Not makedirs: the folder of an attempt that was superseded must not come back.
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            self.check_newest()
            raise CheckpointError(
                f"checkpoint of step {step}: {path} cannot be created: {error.strerror}"
            ) from error
        return path

    def commit(self, step: int) -> None:
        """Commit a checkpoint that all ranks have written.

        Raises:
            CheckpointError: The checkpoint cannot be committed.
            SupersededError: A newer attempt has started.
        """
        source = os.path.join(self.own, f"{PREFIX}{step}")
        try:
            for path in _tree(source):
                _sync(path)
            self.check_newest()
            os.rename(source, self.committed_path(step))
            _sync(self.path)
        except OSError as error:
            self.check_newest()
            raise CheckpointError(
                f"checkpoint of step {step} in {source} cannot be committed: {error.strerror}; "
                "the checkpoints committed before are unchanged"
            ) from error

    def prune(self, keep: int) -> None:
        """Delete committed checkpoints except the newest ``keep``."""
        for step in self.committed()[:-keep]:
            self._discard(self.committed_path(step))

    def _remove(self, attempt: str) -> None:
        """Remove the folder of an attempt; other ranks may do it at the same time."""
        for _ in range(100):
            try:
                for name in os.listdir(attempt):
                    self._discard(os.path.join(attempt, name))
                os.rmdir(attempt)
            except FileNotFoundError:
                return
            except OSError:
                continue  # its processes still create files
        if os.path.exists(attempt):
            os.rmdir(attempt)

    def _discard(self, path: str) -> None:
        """Move a file or folder away at once, then delete it. A missing one is not an error."""
        import shutil

        trash = os.path.join(self.own, f"trash-{os.urandom(8).hex()}")
        try:
            os.rename(path, trash)
        except FileNotFoundError:
            return
        if os.path.isdir(trash):
            # The next attempt tries again to delete what cannot be deleted now.
            shutil.rmtree(trash, ignore_errors=True)
        else:
            os.unlink(trash)
