"""The folder of a group of jobs on another machine, whose jobs do not see this machine's folders.

The client makes the folder on this machine, and copies it to the host before it submits a job. It
copies the outcomes of the jobs back.
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from torchx_functions.errors import UnsafeFolderError
from torchx_functions.folders import PrivateFolder, checksum, open_call
from torchx_functions.outcome import CLAIM, OUTCOME
from torchx_kit.hosts.lookup import find_host
from torchx_kit.hosts.operations import ReadFiles, Run, Write
from torchx_kit.names.ids import random_id
from torchx_specs.errors import ConfigError, one_line

#: The file with the modules that the program of a job imports, in the folder of a group.
MODULES = "modules.zip"
#: The folder of all groups on a host.
ROOT = "~/.torchx/functions"
# The files of a job are looked at again after this time, in seconds.
_PAUSE = 1.0
# Read files in one request until they have this size, in bytes.
_REQUEST_BYTES = 1 << 22

# These programs run on the host with Python 3.6 or newer. The first creates the folder of all
# groups, and prints its path and the user's id.
_PREPARE = """\
import json, os, sys
root = os.path.realpath(os.path.expanduser(sys.argv[1]))
try:
    os.makedirs(root, 0o700, exist_ok=True)
except OSError as e:
    sys.exit("%s cannot be created: %s" % (root, e.strerror))
print(json.dumps([root, os.geteuid()]))
"""
# The second prints change time and size of each file with an outcome; null without the folder.
_LIST = """\
import json, os, stat, sys
group, *names = sys.argv[1:]
found = None
for path, refused in (os.path.dirname(group), 0o022), (group, 0o077):
    if not os.path.lexists(path):
        break
    status = os.lstat(path)
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & refused:
        sys.exit("another user may have changed %s; nothing was read from it" % path)
else:
    found = {}
    for number in os.listdir(group):
        for name in names:
            try:
                status = os.stat("%s/%s/%s" % (group, number, name))
            except OSError:
                continue
            found["%s/%s" % (number, name)] = [status.st_ctime_ns, status.st_size]
print(json.dumps(found))
"""


def modules() -> bytes:
    """Return a zip file with the modules that the program of a job imports."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("cloudpickle", "torchx_functions", "torchx_kit", "torchx_specs"):
            for file in files(package).iterdir():
                if file.name.endswith(".py"):
                    archive.writestr(f"{package}/{file.name}", file.read_bytes())
    return content.getvalue()


def prepare_root(host: str, root: str) -> tuple[str, int]:
    """Create the folder of all groups on a host; return its path and the user's id there.

    Raises:
        ConfigError: The folder cannot be created.
        BackendError: The host refuses the connection, or does not answer.
    """
    done = find_host(host).run(["python3", "-c", _PREPARE, root])
    if done.exit_code:
        raise ConfigError(f"folder= on {host}: {one_line(done.stderr)}")
    path, user = json.loads(done.stdout)
    return path, user


@dataclass
class HostFolder:
    """The folder of a group of jobs on a host.

    Args:
        host: The host.
        path: The folder.
        user: The user's id on the host.
    """

    host: str
    path: str
    user: int
    #: Whether the folder does not exist any more.
    is_deleted: bool = field(default=False, init=False)
    _known: dict[str, list[int]] = field(default_factory=dict, init=False)
    _due: float = field(default=0.0, init=False)

    def send(self, folder: str) -> None:
        """Copy the folder of a group to the host."""
        find_host(self.host).put(folder, self.path)

    def remove(self) -> None:
        """Remove the folder; a missing folder is not an error."""
        find_host(self.host).remove_tree(self.path)

    def claim(self, number: int, content: bytes) -> None:
        """Write the file :data:`CLAIM` of a call unless it exists."""
        host = find_host(self.host)
        folder = posixpath.join(self.path, str(number))
        partial = posixpath.join(folder, f".{CLAIM}.{random_id(12)}.partial")
        link = Run(["ln", partial, posixpath.join(folder, CLAIM)])
        host.batch([Write(partial, checksum([content]) + content), link])
        host.remove_files([partial])

    def fetch(self, folder: str, *, is_due: bool = False) -> None:
        """Copy new files of the jobs to the folder of the group on this machine.

        Args:
            folder: The folder of the group on this machine.
            is_due: Whether to look at the files even if this was done a moment ago.

        Raises:
            UnsafeFolderError: Another user may have changed the folder on the host.
            BackendError: The host refuses the connection, or does not answer.
        """
        if not is_due and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _PAUSE
        host = find_host(self.host)
        done = host.run(["python3", "-c", _LIST, self.path, OUTCOME, CLAIM])
        if done.exit_code:
            raise UnsafeFolderError(f"{self.host}: {one_line(done.stderr)}")
        found: dict[str, list[int]] | None = json.loads(done.stdout)
        self.is_deleted = found is None
        for name in self._known.keys() - (found or {}).keys():
            number, file = name.split("/")
            with open_call(os.path.join(folder, number)) as call:
                call.remove(file)
            del self._known[name]
        new = {k: v for k, v in (found or {}).items() if self._known.get(k) != v}
        for names in _in_requests(new):
            parts = [name.split("/") for name in names]
            wanted = [ReadFiles(posixpath.join(self.path, one), [file]) for one, file in parts]
            for (number, file), result in zip(parts, host.batch(wanted), strict=True):
                if isinstance(result, dict) and file in result:
                    with open_call(os.path.join(folder, number)) as call:
                        call.copy(file, result[file])
            self._known |= {name: new[name] for name in names}


def read_host_folder(group: PrivateFolder) -> HostFolder | None:
    """Return the folder on the host of a group's jobs; None if the jobs use this machine's folder.

    Raises:
        FileNotFoundError: The file ``job.json`` does not exist.
        UnsafeFolderError: Another user may have changed the file.
        NoResultError: The file is damaged.
    """
    found = json.loads(group.read("job.json")).get("host")
    return found and HostFolder(**found)


def _in_requests(found: Mapping[str, list[int]]) -> Iterator[list[str]]:
    """Divide names of files by the sizes of the files."""
    names: list[str] = []
    total = 0
    for name, (_, size) in found.items():
        names.append(name)
        total += size
        if total >= _REQUEST_BYTES:
            yield names
            names, total = [], 0
    if names:
        yield names
