"""The operations of hosts, and the program that executes them on another machine.

:class:`torchx_kit.hosts.local.LocalHost` calls the operations. For another machine, this file is
sent to its ``python3``, so it needs only the standard library of Python 3.6: it executes operations
that it reads from standard input. The client imports it for its frames, too.

A frame is the length of a header, the length of the data, the header as JSON, and the data. In the
header, ``{"bytes": N}`` stands for the next N bytes of the data. Text in the header that was not
UTF-8 has surrogate escapes.

A request is a list: its number, the name of an operation, and the operation's arguments. The answer
is a list as well: the request's number, the kind of an error or an empty string, and the result or
the error's arguments. Each request has a thread of its own. The program ends when its standard
input ends.
"""

import collections
import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import json
import os
import pwd
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import IO, Any, Iterator

LENGTHS = struct.Struct(">QQ")
#: A longer frame is not accepted.
MAX_FRAME_BYTES = 1 << 31
# Pauses between two looks at followed files, in seconds.
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.4
BLOCK_BYTES = 1 << 16
#: Set when standard input has ended.
CLIENT_GONE = threading.Event()
#: The name of threads that this program awaits before it ends.
AWAITED = "torchx-awaited"


def pack(value: "Any") -> bytes:
    """Return a frame with a value: lists, dictionaries, text, numbers, None, and bytes."""
    blobs = []

    def replacement(blob: "Any") -> "dict[str, int]":
        blobs.append(bytes(blob))
        return {"bytes": len(blob)}

    header = json.dumps(value, default=replacement, separators=(",", ":")).encode("ascii")
    return b"".join([LENGTHS.pack(len(header), sum(map(len, blobs))), header] + blobs)


def unpack(file: "IO[bytes]") -> "Any":
    """Read a frame, and return its value; None at the end of the file.

    Raises:
        ValueError: The file has something else.
    """
    lengths = file.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    sizes = LENGTHS.unpack(lengths)
    if sum(sizes) > MAX_FRAME_BYTES:
        raise ValueError("not a frame")
    header, data = (file.read(size) for size in sizes)
    if len(data) < sizes[1] or len(header) < sizes[0]:
        return None
    position = 0

    def original(found: "dict[str, Any]") -> "Any":
        nonlocal position
        if list(found) != ["bytes"] or not isinstance(found["bytes"], int):
            return found
        begin, position = position, position + found["bytes"]
        return data[begin:position]

    return json.loads(header.decode("ascii"), object_hook=original)


def to_bytes(text: str) -> bytes:
    """Return a path, an argument or a variable as bytes, whatever this process's locale is."""
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    """Return the inverse of :func:`to_bytes`."""
    return data.decode("utf-8", "surrogateescape")


class Failure(Exception):
    """An operation failed.

    The arguments are the kind of the error, which the client translates, and its message.
    """


@contextlib.contextmanager
def file_errors(action: str, path: str) -> "Iterator[None]":
    """Raise errors of the system as a :class:`Failure`."""
    try:
        yield
    except OSError as e:
        reason = e.strerror or e
        raise Failure("file", "cannot {} {}: {}".format(action, path, reason)) from None


# Operations, each with the arguments of a request.


def run(
    argv: "list[str]",
    stdin: "bytes | None",
    env: "dict[str, str | None]",
    seconds: "float | None",
    inherited: "tuple[int, ...]" = (),
) -> "list[Any]":
    """Run a command, and return its exit code, standard output and standard error.

    Args:
        argv: The command.
        stdin: Its standard input.
        env: Changes of its environment.
        seconds: Its time limit.
        inherited: Further file descriptors that the command gets.
    """
    name = argv[0]
    variables = dict(os.environb)
    for key, value in env.items():
        variables.pop(to_bytes(key), None)
        if value is not None:
            variables[to_bytes(key)] = to_bytes(value)
    try:
        process = subprocess.Popen(
            [to_bytes(one) for one in argv],
            env=variables,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=inherited,
        )
    except FileNotFoundError:
        message = "there is no command {} on PATH".format(name)
        raise Failure("missing_command", message) from None
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise Failure("host", "cannot run {}: {}".format(name, reason)) from None
    try:
        stdout, stderr = process.communicate(stdin, seconds)
    except subprocess.TimeoutExpired as e:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            stderr = process.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            stderr = b""  # a process outside of the group keeps the streams open
        text = " ".join(stderr.decode("utf-8", "replace").split())
        message = "{} did not end within {:g} s{}{}".format(name, e.timeout, text and ": ", text)
        raise Failure("timeout", message) from None
    except BaseException:  # Ctrl-C, if the host is the user's machine
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return [process.returncode, stdout, stderr]


def read(path: str, limit: "int | None") -> bytes:
    """Return the content of a file."""
    with file_errors("read", path), open(to_bytes(path), "rb") as file:
        return file.read(-1 if limit is None else limit)


def read_files(folder: str, names: "list[str]", limit: "int | None") -> "list[list[Any]]":
    """Return the names and contents of files whose names match a pattern."""
    found = []  # type: list[list[Any]]
    try:
        entries = list_names(folder)
    except Failure:
        return found
    for entry in entries:
        if any(fnmatch.fnmatchcase(entry, pattern) for pattern in names):
            try:
                found.append([entry, read(folder + "/" + entry, limit)])
            except Failure:
                pass
    return found


def write(path: str, data: bytes, mode: int) -> None:
    """Write a file atomically."""
    put_part(path, os.urandom(6).hex(), 0, data, mode)


def put_part(path: str, token: str, position: int, data: bytes, mode: "int | None") -> None:
    """Write a part of a file under a temporary name; the last part, with a mode, replaces the file.

    Args:
        path: The file.
        token: The same for all parts of a file.
        position: Where the part begins, in bytes.
        data: The part.
        mode: Permission bits of the file, subject to the umask; None if more parts follow.
    """
    folder, name = os.path.split(to_bytes(path))
    partial = os.path.join(folder, b"." + name + b"." + to_bytes(token) + b".partial")
    with file_errors("write", path):
        try:
            flags = os.O_WRONLY if position else os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(partial, flags, 0o600 if mode is None else mode), "wb") as file:
                file.seek(position)
                file.write(data)
            if mode is not None:
                os.replace(partial, to_bytes(path))
        except BaseException:
            try:
                os.unlink(partial)
            except OSError:
                pass
            raise


def list_names(path: str) -> "list[str]":
    """Return the names in a directory, sorted."""
    with file_errors("list", path):
        return sorted(map(to_text, os.listdir(to_bytes(path))))


def exists(path: str) -> bool:
    """Return True if a file or directory exists."""
    return os.path.exists(to_bytes(path))


def make_dirs(path: str, mode: int) -> None:
    """Create a directory and its parents."""
    with file_errors("create directory", path):
        os.makedirs(to_bytes(path), mode, exist_ok=True)


def remove_tree(path: str) -> None:
    """Remove a directory with everything in it."""
    shutil.rmtree(to_bytes(path), ignore_errors=True)
    if os.path.lexists(to_bytes(path)):
        with file_errors("remove", path):
            shutil.rmtree(to_bytes(path))  # raises the error that the first call ignored


def remove_files(paths: "list[str]") -> None:
    """Remove files."""
    for path in paths:
        with file_errors("remove", path):
            try:
                os.unlink(to_bytes(path))
            except FileNotFoundError:
                pass


def remove_empty_dir(path: str) -> None:
    """Remove a directory if it is empty."""
    try:
        os.rmdir(to_bytes(path))
    except OSError:
        pass


def expand_user(path: str) -> str:
    """Return a path with the home directory in place of ``~`` or ``~NAME``."""
    return to_text(os.path.expanduser(to_bytes(path)))


# Trees: DIRECTORY/NAME/files is a copy of a workspace, and DIRECTORY/NAME/list is its list:
# path, digest, size and change time of each file.


def tree_list(tree: str) -> "list[list[Any]]":
    """Return the list of a tree; empty if there is none."""
    try:
        with open(to_bytes(tree + "/list"), "rb") as file:
            return unpack(file) or []
    except (OSError, ValueError):
        return []


def size_and_change(path: str) -> "list[int]":
    """Return size and change time of a file or a link; a missing file has the size -1."""
    try:
        status = os.lstat(to_bytes(path))
    except OSError:
        return [-1, 0]
    return [status.st_size, status.st_ctime_ns]


def is_unchanged(tree: str) -> bool:
    """Return True if a tree has its files, and no job has changed them."""
    listed = tree_list(tree)
    return exists(tree + "/list") and all(
        size_and_change("{}/files/{}".format(tree, path)) == rest for path, _, *rest in listed
    )


def is_own(tree: str) -> bool:
    """Return True if a tree is a directory of this user."""
    status = os.lstat(to_bytes(tree))
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def trees_of_name(folder: str, name: str) -> "tuple[list[str], str]":
    """Return the trees with a name or the name and a number, and the first path that is free."""
    trees = []
    path = "{}/{}".format(folder, name)
    while exists(path):
        trees.append(path)
        path = "{}/{}-{}".format(folder, name, len(trees) + 1)
    return trees, path


def find_tree(folder: str, name: str) -> str:
    """Return the directory with the unchanged files of a tree, and mark it as used; or ''."""
    for tree in trees_of_name(folder, name)[0]:
        if is_own(tree) and is_unchanged(tree):
            with file_errors("write", tree):
                os.utime(to_bytes(tree))
            return tree + "/files"
    return ""


def make_tree(folder: str, name: str, files: "list[list[Any]]", partial: str) -> "list[Any]":
    """Create a tree, or return the digests of the files that no tree has.

    Args:
        folder: The directory of trees.
        name: The name of the tree.
        files: Path, mode, digest and target of each file; the target of a file is None.
        partial: A directory for the files until the tree is complete. Its directory ``new`` has
            the files that were sent, by digest.

    Returns:
        The directory with the files, or an empty text; and the missing digests.
    """
    found = find_tree(folder, name)
    if found:
        remove_tree(partial)  # another client was quicker
        return [found, []]
    known = {}  # type: dict[str, list[str]]
    for other in list_names(folder) if exists(folder) else []:
        for path, digest, *_ in tree_list("{}/{}".format(folder, other)):
            known.setdefault(digest, []).append("{}/{}/files/{}".format(folder, other, path))
    missing = {}  # type: dict[str, None]
    with file_errors("write", partial):
        os.makedirs(to_bytes(partial + "/new"), 0o700, exist_ok=True)
        os.makedirs(to_bytes(partial + "/files"), 0o700, exist_ok=True)
        for path, mode, digest, link in files:
            target = "{}/files/{}".format(partial, path)
            if os.path.lexists(to_bytes(target)):
                continue  # from an earlier request
            os.makedirs(to_bytes(os.path.dirname(target)), exist_ok=True)
            if link is not None:
                os.symlink(to_bytes(link), to_bytes(target))
                continue
            sent = "{}/new/{}".format(partial, digest)
            sources = known.setdefault(digest, [])
            if content_digest(sent) == digest:
                os.rename(sent, to_bytes(target))
                sources.append(target)
            elif not any(copy_verified(source, target, digest) for source in sources):
                missing[digest] = None
                continue
            os.chmod(to_bytes(target), mode)
        if missing:
            return ["", list(missing)]
        listed = [
            [path, digest] + size_and_change("{}/files/{}".format(partial, path))
            for path, _, digest, _ in files
        ]
        remove_tree(partial + "/new")
        write(partial + "/list", pack(listed), 0o600)
        while not find_tree(folder, name):
            free = trees_of_name(folder, name)[1]
            try:
                os.rename(to_bytes(partial), to_bytes(free))
            except OSError as e:
                if e.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
    remove_tree(partial)
    return [find_tree(folder, name), []]


def list_trees(folder: str) -> "list[list[Any]]":
    """Return name, last use and size of each tree, and whether it has only its own files."""
    found = []
    for name in list_names(folder) if exists(folder) else []:
        tree = "{}/{}".format(folder, name)
        if not is_own(tree):
            continue
        files = to_bytes(tree + "/files")
        listed = {path for path, *_ in tree_list(tree)}
        has_own_files = is_unchanged(tree)
        size = 0
        for place, _, names in os.walk(to_bytes(tree)):
            for one in names:
                path = os.path.join(place, one)
                size += max(0, size_and_change(to_text(path))[0])
                relative = to_text(os.path.relpath(path, files))
                own = relative in listed or relative == "../list"
                own = own or "__pycache__" in relative.split("/")
                has_own_files = has_own_files and own
        with file_errors("read", tree):
            found.append([name, os.stat(to_bytes(tree)).st_mtime_ns, size, has_own_files])
    return found


def remove_tree_if_unused(folder: str, name: str, used_ns: int) -> bool:
    """Remove a tree, and return True; return False if it was used in the meantime."""
    moved = "{}/.{}.{}.pruned".format(folder, name.strip("."), os.urandom(6).hex())
    tree = to_bytes("{}/{}".format(folder, name))
    with file_errors("remove", folder):
        try:
            os.rename(tree, to_bytes(moved))
        except FileNotFoundError:
            return True
        if os.stat(to_bytes(moved)).st_mtime_ns != used_ns:
            os.rename(to_bytes(moved), tree)
            return False
    remove_tree(moved)
    return True


def content_digest(path: str, copy: "IO[bytes] | None" = None) -> str:
    """Return the SHA-256 of a file, and write its content to ``copy``; empty if it is no file."""
    try:
        fd = open_regular(path)
    except OSError:
        return ""
    if fd < 0:
        return ""
    found = hashlib.sha256()
    with open(fd, "rb") as file:
        for data in iter(lambda: file.read(BLOCK_BYTES), b""):
            found.update(data)
            if copy is not None:
                copy.write(data)
    return found.hexdigest()


def copy_verified(source: str, target: str, digest: str) -> bool:
    """Copy a file if it has a digest, and return whether it has."""
    with open(to_bytes(target), "xb") as copy:
        is_right = content_digest(source, copy) == digest
    if not is_right:
        os.unlink(to_bytes(target))
    return is_right


def batch(operations: "list[list[Any]]", once: str = "") -> "list[Any]":
    """Execute operations in their order, up to a command that fails, and return their results.

    Args:
        operations: The operations.
        once: A file, with which the same request may be sent again: no command is executed twice.
    """
    journal = Journal(once) if once else None
    results = []
    try:
        for name, arguments in operations:
            if journal is None:
                results.append(OPERATIONS[name](*arguments))
            else:
                results.append(journal.result(name, arguments))
            if name == "run" and results[-1][0] != 0:
                break
    finally:
        if journal is not None:
            journal.file.close()
    return results


class Journal:
    """The results of a request whose operations are executed once.

    The commands inherit the lock of the file. So a program that executes the same request again
    waits for a command that an earlier program has left.

    Args:
        path: The file; its directory is created.
    """

    def __init__(self, path: str) -> None:
        threading.current_thread().name = AWAITED
        with file_errors("write", path):
            os.makedirs(to_bytes(os.path.dirname(path)), 0o700, exist_ok=True)
            fd = os.open(to_bytes(path), os.O_RDWR | os.O_CREAT, 0o600)
            self.file = open(fd, "r+b")  # noqa: SIM115 - the caller closes it
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX)
            except OSError:
                pass  # the file system has no locks
        self.known = []  # type: list[Any]
        end = 0
        for entry in iter(lambda: unpack(self.file), None):
            self.known.append(entry)
            end = self.file.tell()
        self.file.seek(end)  # after a full disk, the last entry may be incomplete
        self.file.truncate()

    def result(self, name: str, arguments: "list[Any]") -> "Any":
        """Return the result of the next operation; execute it unless the file has the result."""
        if self.known:
            entry = self.known.pop(0)
            # The first entry of a command means that it began.
            if name == "run" and not self.known:
                message = "{} was interrupted; whether it had an effect is unknown"
                raise Failure("timeout", message.format(arguments[0][0]))
            kind, *rest = self.known.pop(0) if name == "run" else entry
            if kind:
                raise Failure(kind, *rest)
            return rest[0]
        if CLIENT_GONE.is_set():
            raise Failure("host", "the client has ended")
        if name != "run":
            result = OPERATIONS[name](*arguments)
            self.add(["", result])
            return result
        self.add([name])
        try:
            argv, stdin, env, seconds = arguments
            result = run(argv, stdin, env, seconds, (self.file.fileno(),))
        except Failure as e:
            self.add(list(e.args))
            raise
        self.add(["", result])
        return result

    def add(self, entry: "list[Any]") -> None:
        """Append an entry to the file."""
        with file_errors("write", self.file.name):
            self.file.write(pack(entry))
            self.file.flush()


# Followed files. The client knows how much of each file it has.

#: Files that were read last, by device and inode. A file that was deleted or replaced keeps its
#: unread bytes while it is open, and no new file gets its inode. After a broken connection, another
#: program has this state no more.
OPENED = collections.OrderedDict()  # type: collections.OrderedDict[tuple[int, ...], IO[bytes]]
MOST_OPENED = 256


def open_regular(path: str) -> int:
    """Open a regular file, and return its descriptor; -1 if it does not exist."""
    try:
        fd = os.open(to_bytes(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return -1
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a regular file")


def new_bytes(
    path: str, position: int, identity: "list[int] | None", room: int
) -> "list[Any] | None":
    """Return what is new in a file, or None.

    The items are the position of the bytes, the bytes, the file's identity, and whether the file
    begins anew, because it was truncated or replaced.

    Args:
        path: The file.
        position: How much of the file the client has, in bytes.
        identity: Device and inode of the file that the client knows; None if it knows none.
        room: The most bytes to return.
    """
    known = tuple(identity or ())
    old = OPENED.get(known)
    with file_errors("read", path):
        fd = open_regular(path)
        file = open(fd, "rb") if fd >= 0 else old  # noqa: SIM115 - OPENED keeps it
        if file is None:
            return None
        status = os.fstat(file.fileno())
        found = (status.st_dev, status.st_ino)
        if old is not None and found != known:
            rest = os.pread(old.fileno(), room, position)
            if rest:
                return [position, rest, known, False]
            OPENED.pop(known, None)
        OPENED.pop(found, None)
        OPENED[found] = file
        if len(OPENED) > MOST_OPENED:
            OPENED.popitem(last=False)
        is_new = known not in ((), found) or status.st_size < position
        begin = 0 if is_new else position
        data = os.pread(file.fileno(), room, begin)
    return [begin, data, found, is_new] if data or is_new else None


def changes(
    files: "list[list[Any]]",
    watch: "list[str]",
    seen: "list[list[int]]",
    seconds: float,
    room: int,
) -> "list[Any]":
    """Return what is new in files, and the sizes and times of the watched files.

    Args:
        files: Path, position and identity of each file; see :func:`new_bytes`.
        watch: The watched files.
        seen: Their sizes and times that the client knows.
        seconds: How long to wait for news.
        room: The most bytes to return of each file.
    """
    end = time.monotonic() + seconds
    pause = FIRST_PAUSE
    while True:
        found = [
            (k, new_bytes(path, position, identity, room))
            for k, (path, position, identity) in enumerate(files)
        ]
        news = [[k] + one for k, one in found if one is not None]
        now = [size_and_change(path) for path in watch]
        left = end - time.monotonic()
        if news or now != seen or left <= 0:
            return [news, now]
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def last_lines(paths: "list[str]", last: int) -> "list[int]":
    """Return where the last lines of each file begin, as if the files were joined."""
    positions = []
    for path in reversed(paths):
        position, count = last_lines_of_file(path, last)
        positions.append(position)
        last -= count
    return positions[::-1]


def last_lines_of_file(path: str, last: int) -> "tuple[int, int]":
    """Return where the last lines of a file begin, and the number of these lines."""
    with file_errors("read", path):
        fd = open_regular(path)
        if fd < 0:
            return 0, 0
        with open(fd, "rb"):
            size = os.fstat(fd).st_size
            if last <= 0 or not size:
                return size, 0
            count = 1
            upper = size - 1  # a newline in the last byte begins no line
            while upper > 0:
                lower = max(0, upper - BLOCK_BYTES)
                block = os.pread(fd, upper - lower, lower)
                at = block.rfind(b"\n")
                while at >= 0:
                    if count == last:
                        return lower + at + 1, count
                    count += 1
                    at = block.rfind(b"\n", 0, at)
                upper = lower
            return 0, count


OPERATIONS = {
    function.__name__: function
    for function in (
        *(run, read, read_files, write, put_part, list_names, exists, make_dirs),
        *(remove_tree, remove_files, remove_empty_dir, expand_user, batch),
        *(find_tree, make_tree, list_trees, remove_tree_if_unused, changes, last_lines),
    )
}  # type: dict[str, Any]


class Server:
    """Answers requests until standard input ends."""

    def __init__(self, stdin: "IO[bytes]", stdout: "IO[bytes]") -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.lock = threading.Lock()

    def serve(self) -> None:
        """Say that this program runs, and answer requests."""
        self.send(greeting())
        while True:
            request = unpack(self.stdin)
            if request is None:
                return
            threading.Thread(target=self.answer, args=request, daemon=True).start()

    def send(self, value: "Any") -> None:
        """Write a frame."""
        frame = pack(value)
        with self.lock:
            self.stdout.write(frame)
            self.stdout.flush()

    def answer(self, number: int, name: str, *arguments: "Any") -> None:
        """Execute an operation, and send its result or its error."""
        answer = [number, ""]  # type: list[Any]
        try:
            answer.append(OPERATIONS[name](*arguments))
        except Failure as e:
            answer = [number] + list(e.args)
        except Exception as e:
            answer = [number, "host", "{}: {}".format(type(e).__name__, e)]
        try:
            self.send(answer)
        except OSError:
            pass  # the client is gone, and serve() returns


def greeting() -> "dict[str, Any]":
    """Return what the client needs to know of this host."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return {
        "user": user,
        "home": expand_user("~"),
        "directory": to_text(os.getcwdb()),
        "variables": [to_text(name) for name in os.environb],
    }


def main() -> None:
    """Run the program: its first line of input is written before the first frame."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    # With this variable, each bash that a command starts would read ~/.bashrc.
    os.environ.pop("SSH_CLIENT", None)
    stdout.write(stdin.readline())
    Server(stdin, stdout).serve()
    # Other commands that still run are not awaited.
    CLIENT_GONE.set()
    for thread in threading.enumerate():
        if thread.name == AWAITED:
            thread.join()
    os._exit(0)


if __name__ == "__main__":
    main()
