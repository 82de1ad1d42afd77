"""A double of LSF with one host: bsub, bjobs, bkill and others, which really run the jobs.

IBM's LSF is not available for tests. The double has only options that IBM documents. It refuses
other options as LSF does, with a usage message and exit code 255, and its output has LSF's formats.
By default, the host has an unlimited number of slots. The only queue is ``normal``. A job has the
environment, the directory and the umask of its bsub, as the man page of bsub says ("file creation
mask"). bstop changes PEND to PSUSP, and RUN to USUSP, as IBM's page "Suspending a job" says.
Of the environment, bsub reads BSUB_QUIET, BSUB_STDERR, BSUB_CHK_RESREQ, LSB_DEFAULTQUEUE,
LSB_DEFAULTPROJECT and LSB_NTRIES, as IBM's "Environment variable reference" describes them.

    lsf_double.py bsub|bjobs|bkill|bparams|brequeue|bstop|bresume|bhist|bhosts ...

``LSF_DOUBLE_DIR`` is the directory of the double's state: a file ``<id>.json`` for each job, and
``calls.log`` with a line for each command. While the directory has a file ``down``, the daemon does
not answer. While it has a file ``host-down``, the execution host does not: its jobs are dead, their
state is UNKWN, and ZOMBI after bkill; once the host is back, they have ended by TERM_ZOMBIE ("job
exits when host crashes"). These variables change the double's behaviour:

- ``LSF_DOUBLE_VERSION``: the version that ``bsub -V`` prints, such as ``10.1.0.8``. According to
  IBM's release notes, resource requirements can have units since 10.1.0.2, and ``/host`` since
  10.1.0.9. A version without digits stands for a compatible system: no ``-gpu``, no units.
- ``LSF_DOUBLE_OLD=1``: bjobs has neither ``-o`` nor ``-UF``.
- ``LSF_DOUBLE_SLOW``: bsub prints the job's id this number of seconds after it accepted the job.
- ``LSF_DOUBLE_MAX_ARRAY``: MAX_JOB_ARRAY_SIZE of lsb.params; by default 1000, as in LSF.
- ``LSF_DOUBLE_MAX_PEND``: MAX_PEND_JOBS of lsb.params. While more jobs would be pending, bsub
  prints a message, and tries again every 60 seconds, LSB_NTRIES times.
- ``LSF_DOUBLE_NO_REASONS=1``: bjobs shows no termination reasons, as without TERM_ words in a
  compatible system.
- ``LSF_DOUBLE_MINUTE``: length of a minute of a run limit, in seconds.
- ``LSF_DOUBLE_SLOTS``: how many jobs run at the same time (default: no limit).
- ``LSF_DOUBLE_CLEAN_PERIOD``: after this number of seconds, LSF forgets an ended job.
- ``LSF_DOUBLE_PROJECTS``: names of projects; bsub refuses a job of any other project.
- ``LSF_DOUBLE_HIDDEN``: a directory that the execution host cannot see.
- ``$LSF_ENVDIR/lsf.conf``: ``LSF_UNIT_FOR_LIMITS`` and ``LSB_BJOBS_DISPLAY_ENH``, as in LSF.

A job that exits with a code of ``bsub -Q`` is requeued, unless it was killed; a job with
``bsub -r`` also if its host was down ("Job requeue and job rerun" of IBM's administration guide).
Of the values of ``-Q``, the double knows numbers only.

The elements of a job array have files ``<number>[<index>].json``. As in LSF, bjobs prints a row for
each element; the elements share the number in the column JOBID, and their names end with their
indices. bkill takes ``<number>[<index>]`` for one element, as its synopsis says.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Job = dict[str, Any]

FOLDER = Path(os.environ["LSF_DOUBLE_DIR"])
OLD = bool(os.environ.get("LSF_DOUBLE_OLD"))
VERSION = os.environ.get("LSF_DOUBLE_VERSION", "8.0.1" if OLD else "10.1.0.14")
NUMBERS = tuple(int(part) for part in VERSION.split(".")) if VERSION[0].isdigit() else (0,)
USER = os.environ.get("USER") or str(os.getuid())
HOST = os.uname().nodename
KILL_INTERVAL = 0.5  # JOB_TERMINATE_INTERVAL of lsb.params, which is 10 s by default
UNITS = {"KB": 1 / 1024, "MB": 1.0, "GB": 1024.0, "TB": 1024.0**2}
STARTED = ("RUN", "USUSP", "SSUSP")
REASONS = {
    "TERM_OWNER": "job killed by owner",
    "TERM_RUNLIMIT": "job killed after reaching LSF run time limit",
    "TERM_MEMLIMIT": "job killed after reaching LSF memory usage limit",
    "TERM_ZOMBIE": "job exited while LSF is not available",
}

# The options of a command; the value is 1 for an option with a value, 0 for a flag.
BSUB = {"-P": 1, "-J": 1, "-q": 1, "-n": 1, "-m": 1, "-o": 1, "-e": 1, "-i": 1, "-w": 1, "-W": 1}
BSUB |= {"-M": 1, "-R": 1, "-r": 0, "-K": 0, "-H": 0, "-V": 0, "-b": 1, "-Q": 1}
if NUMBERS >= (10, 1):
    BSUB |= {"-gpu": 1}
BJOBS = {"-a": 0, "-P": 1, "-w": 0, "-l": 0, "-u": 1, "-J": 1}
if not OLD:
    BJOBS |= {"-o": 1, "-UF": 0}


def fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 255


def options(known: dict[str, int], argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options by name, and the arguments after them; exit if an option is not known."""
    found: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name not in known:
            sys.exit(fail(f"{name}: Illegal option\nUsage: ..."))
        if known[name] and not words:
            sys.exit(fail(f"{name}: option needs a value\nUsage: ..."))
        found[name] = words.pop(0) if known[name] else "yes"
    return found, words


def wait_for_daemon() -> None:
    """Wait while the batch daemon is down, and print the message of LSF's commands meanwhile."""
    for _ in tries():
        if not (FOLDER / "down").exists():
            return
        print("Cannot connect to LSF. Please wait ...", file=sys.stderr, flush=True)
        time.sleep(0.5)
    sys.exit(fail("batch system daemon not responding"))


def tries() -> Iterator[int]:
    """Yield LSB_NTRIES times, or without end."""
    most = int(os.environ.get("LSB_NTRIES") or 0)
    return iter(range(most)) if most else itertools.count()


def load(job_id: int | str) -> Job | None:
    try:
        return json.loads((FOLDER / f"{job_id}.json").read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None


def save(job: Job) -> None:
    path = FOLDER / f"{job['id']}.json"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(job))
    partial.replace(path)


def update(job_id: int | str, **values: object) -> Job:
    with locked():
        job = load(job_id)
        assert job is not None
        job.update(values)
        save(job)
        return job


class locked:  # noqa: N801 - reads like a statement
    def __enter__(self) -> None:
        self.file = open(FOLDER / "lock", "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()


def split_id(text: object) -> tuple[int, int]:
    """Return the number and the index in the id of a job; both are 0 for other texts."""
    form = re.fullmatch(r"(\d+)(?:\[(\d+)\])?", str(text))
    return (int(form[1]), int(form[2] or 0)) if form else (0, 0)


def elements(number: int) -> list[Job]:
    """Return the elements of an array, or a single job."""
    return [job for job in all_jobs() if split_id(job["id"])[0] == number]


def all_jobs() -> list[Job]:
    ids = [path.stem for path in FOLDER.glob("*.json") if split_id(path.stem)[0]]
    return [job for job in map(load, sorted(ids, key=split_id)) if job is not None]


def jobs() -> list[Job]:
    """Return the jobs that LSF has not forgotten."""
    period = float(os.environ.get("LSF_DOUBLE_CLEAN_PERIOD", "inf"))
    oldest = time.time() - period
    return [job for job in all_jobs() if not job["ended"] or job["ended"] > oldest]


# The command bsub, and the syntax of its options.


def bsub(argv: list[str]) -> int:
    opts, command = options(BSUB, argv)
    if "-V" in opts:
        name = "IBM Spectrum LSF Standard" if NUMBERS >= (10,) else "Platform LSF"
        compatible = "A batch system with LSF's commands"
        print(f"{name} {VERSION}, May 4 2023" if NUMBERS > (0,) else compatible, file=sys.stderr)
        return 0
    wait_for_daemon()
    queue = opts.get("-q") or os.environ.get("LSB_DEFAULTQUEUE") or "normal"
    if queue != "normal":
        return fail(f"{queue}: No such queue. Job not submitted.")
    project = opts.get("-P") or os.environ.get("LSB_DEFAULTPROJECT") or "default"
    known = os.environ.get("LSF_DOUBLE_PROJECTS", "").split()
    if known and project not in known:
        print(f"project {project} is not a known project", file=sys.stderr)
        return fail("Request aborted by esub. Job not submitted.")
    requirement = opts.get("-R", "")
    memory = re.search(r"rusage\[mem=([^\],:]+)", requirement)
    if "BSUB_CHK_RESREQ" in os.environ:  # only checks the resource requirement
        return 0
    condition = dependency(opts.get("-w", ""))
    script = " ".join(command) if command else sys.stdin.read()
    name, indices, limit = array_of(opts.get("-J", script.split("\n")[0][:40]))
    with locked_below_threshold(len(indices) or 1):
        job_id = max((split_id(job["id"])[0] for job in all_jobs()), default=100) + 1
        job = {
            "id": job_id,
            "stat": "PSUSP" if "-H" in opts else "PEND",
            "begin": "-b" in opts,  # the tests only give times in the far future
            "project": project,
            "name": name,
            "limit": limit,
            "condition": condition,
            "out": opts.get("-o", "/dev/null"),
            "err": opts.get("-e", "/dev/null"),
            "code": None,
            "reason": "",
            "submitted": time.time(),
            "started": None,
            "ended": None,
            "requeue": "",
            "requeue_codes": [int(code) for code in opts.get("-Q", "").split()],
            "rerunnable": "-r" in opts,
            "folder": os.getcwd(),
            "gpu": gpus(opts["-gpu"]) if "-gpu" in opts else 0,
            "reserved": megabytes(memory[1], 1.0) if memory else None,
            "memory": megabytes(opts["-M"], 1 / 1024) if "-M" in opts else None,
            "seconds": seconds(opts["-W"]) if "-W" in opts else None,
        }
        for index in indices:
            save({**job, "id": f"{job_id}[{index}]", "name": f"{name}[{index}]"})
        if not indices:
            save(job)
    (FOLDER / f"{job_id}.script").write_text(script)
    runner("run_array" if indices else "run", job_id)
    time.sleep(float(os.environ.get("LSF_DOUBLE_SLOW", "0")))
    if "BSUB_QUIET" not in os.environ:
        output = sys.stderr if "BSUB_STDERR" in os.environ else sys.stdout
        print(f"Job <{job_id}> is submitted to default queue <normal>.", file=output, flush=True)
    return 0


def runner(action: str, job_id: int | str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-S", __file__, action, str(job_id)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def array_of(spec: str) -> tuple[str, list[int], int]:
    """Return the name, the indices and the limit of running elements in a value of -J.

    A job that is not an array has no indices. The limit 0 means no limit.
    """
    form = re.fullmatch(r"([^\[\]%]+)\[([^\[\]]+)\](?:%(\d+))?", spec)
    if form is None:
        return spec, [], 0
    if len(spec) > 255 or not re.fullmatch(r"[A-Za-z0-9._-]+", form[1]) or form[3] == "0":
        sys.exit(fail(f"{spec}: Bad job name. Job not submitted."))
    indices: set[int] = set()
    for part in form[2].split(","):
        item = re.fullmatch(r"([1-9]\d*)(?:-([1-9]\d*)(?::([1-9]\d*))?)?", part.strip())
        if item is None:
            sys.exit(fail("Job array index error. Job not submitted."))
        if int(item[2] or item[1]) > int(os.environ.get("LSF_DOUBLE_MAX_ARRAY", "1000")):
            sys.exit(fail("Job array index too large. Job not submitted."))
        indices.update(range(int(item[1]), int(item[2] or item[1]) + 1, int(item[3] or 1)))
    return form[1], sorted(indices), int(form[3] or 0)


@contextlib.contextmanager
def locked_below_threshold(count: int) -> Iterator[None]:
    """Wait until ``count`` more jobs may be pending, and hold the lock in the block."""
    most = float(os.environ.get("LSF_DOUBLE_MAX_PEND", "inf"))
    for attempt in tries():
        if attempt:
            time.sleep(60)
        with locked():
            if sum(job["stat"] in ("PEND", "PSUSP") for job in all_jobs()) + count <= most:
                yield
                return
        message = f"User <{USER}>: Pending job threshold reached. Retrying in 60 seconds..."
        print(message, file=sys.stderr, flush=True)
    sys.exit(fail(f"User <{USER}>: Pending job threshold reached. Job not submitted."))


def bparams(argv: list[str]) -> int:
    options({"-a": 0, "-l": 0}, argv)
    print("lsb.params configuration at Sat Nov 21 03:00:00 2026")
    print(f"        MAX_JOB_ARRAY_SIZE = {os.environ.get('LSF_DOUBLE_MAX_ARRAY', '1000')}")
    return 0


# A part of a dependency expression: a condition on a job's id or name, an operator, a parenthesis.
CONDITION = re.compile(
    r'\s*(?:(done|ended|exit|started)\((?:(\d+(?:\[\d+\])?)|"([^"]+)"|([^"\d()][^"()]*))\)'
    r"|(&&|\|\||[()]))\s*"
)


def dependency(expression: str) -> list[list[str]]:
    """Return the parts of a dependency expression: operators, and conditions with a job's id."""
    parts, position = [], 0
    while position < len(expression):
        form = CONDITION.match(expression, position)
        if form is None:
            sys.exit(fail(f"{expression}: Bad dependency expression. Job not submitted."))
        position = form.end()
        if form[5]:
            parts.append([form[5]])
            continue
        name = form[3] or form[4]
        found = [
            job
            for job in jobs()
            if form[2] in (str(job["id"]), str(split_id(job["id"])[0])) or job["name"] == name
        ]
        if not found:
            sys.exit(fail("Dependency condition invalid or never satisfied. Job not submitted."))
        parts.append([form[1], form[2] or str(found[-1]["id"])])
    if parts:
        try:
            evaluate(list(parts))
        except (IndexError, ValueError):
            sys.exit(fail(f"{expression}: Bad dependency expression. Job not submitted."))
    return parts


def evaluate(parts: list[list[str]]) -> bool:
    """Evaluate a dependency expression, and remove its parts from the list.

    Raises:
        IndexError: The expression ends too early.
        ValueError: The expression is malformed.
    """
    value = either(parts)
    if parts:
        raise ValueError(parts)
    return value


def either(parts: list[list[str]]) -> bool:
    value = both(parts)
    while parts and parts[0] == ["||"]:
        parts.pop(0)
        value = both(parts) or value
    return value


def both(parts: list[list[str]]) -> bool:
    value = single(parts)
    while parts and parts[0] == ["&&"]:
        parts.pop(0)
        value = single(parts) and value
    return value


def single(parts: list[list[str]]) -> bool:
    part = parts.pop(0)
    if part == ["("]:
        value = either(parts)
        if parts.pop(0) != [")"]:
            raise ValueError(part)
        return value
    if len(part) != 2:
        raise ValueError(part)
    condition, job_id = part
    heads = elements(int(job_id)) if job_id.isdigit() else [load(job_id)]
    states = {head["stat"] for head in heads if head is not None}
    if condition == "started":
        return not states & {"PEND", "PSUSP"}
    return states <= {"done": {"DONE"}, "exit": {"EXIT"}, "ended": {"DONE", "EXIT"}}[condition]


def configured(parameter: str) -> str:
    """Return the value of a parameter in lsf.conf, or an empty string."""
    try:
        text = Path(os.environ.get("LSF_ENVDIR", "/etc"), "lsf.conf").read_text()
    except OSError:
        return ""
    found = re.search(rf"^{parameter}=(\w+)", text, re.M)
    return found[1] if found else ""


def megabytes(text: str, default_unit: float) -> float:
    """Return an amount of memory in MB; exit if the text is not valid in this version of LSF.

    Args:
        text: The amount in an option.
        default_unit: How many MB a number without a unit means, if lsf.conf does not set
            LSF_UNIT_FOR_LIMITS.
    """
    form = re.fullmatch(r"(\d+)([KMGT]B?)?(/(?:host|job|task))?!?", text)
    refused = form and (
        (form[2] and NUMBERS < (10, 1, 0, 2)) or (form[3] and NUMBERS < (10, 1, 0, 9))
    )
    if form is None or refused:
        sys.exit(fail(f"{text}: Bad resource requirement syntax. Job not submitted."))
    unit = form[2] or configured("LSF_UNIT_FOR_LIMITS")
    return int(form[1]) * (UNITS[unit[0] + "B"] if unit else default_unit)


def gpus(text: str) -> int:
    form = re.match(r"num=(\d+)(/host|/task)?(:|$)", text)
    if form is None or (form[2] and NUMBERS < (10, 1, 0, 9)):
        sys.exit(fail(f"{text}: Bad GPU requirement syntax. Job not submitted."))
    return int(form[1])


def seconds(limit: str) -> float:
    hours, _, minutes = limit.rpartition(":")
    return (int(hours or 0) * 60 + int(minutes)) * float(os.environ.get("LSF_DOUBLE_MINUTE", "60"))


# The execution host, which runs the jobs.


def run(argv: list[str]) -> int:
    """Run a job and save how it ended, as LSF's sbatchd does; run it again if it is requeued."""
    job_id = argv[0]
    while wait_for_start(job_id):
        process = start(job_id)
        if process is None:
            continue
        code = supervise(job_id, process)
        with locked():
            job = load(job_id)
            assert job is not None
            is_again = code in job["requeue_codes"] and not job["reason"]
            is_again = is_again or (job["rerunnable"] and job["reason"] == "TERM_ZOMBIE")
            if job["requeue"] or is_again:
                state = job["requeue"] or "PEND"
                save({**job, "stat": state, "requeue": "", "reason": "", "pid": 0})
                continue
            stat = "DONE" if code == 0 else "EXIT"
            save({**job, "stat": stat, "code": code, "ended": time.time()})
        return 0
    return 0


def run_array(argv: list[str]) -> int:
    """Run the elements of an array, at most ``limit`` at a time, in the order of their indices."""
    waiting = [str(job["id"]) for job in elements(int(argv[0]))]
    running: list[subprocess.Popen[bytes]] = []
    while waiting:
        for job_id in list(waiting):
            job = load(job_id)
            if job is None or job["stat"] == "EXIT":
                waiting.remove(job_id)
            elif job["limit"] and len(running) >= job["limit"]:
                break
            elif job["stat"] == "PEND" and is_satisfied(job):
                waiting.remove(job_id)
                running.append(runner("run", job_id))
        time.sleep(0.05)
        running = [process for process in running if process.poll() is None]
    for process in running:
        process.wait()
    return 0


def is_satisfied(job: Job) -> bool:
    """Return whether the dependency condition of a job holds."""
    is_due = not job["begin"]
    return is_due and (not job["condition"] or evaluate(list(job["condition"])))


def wait_for_start(job_id: str) -> bool:
    """Wait until a job may start; return False if it has ended."""
    while True:
        job = load(job_id)
        if job is None or job["stat"] == "EXIT":
            return False
        if job["stat"] == "PEND" and is_satisfied(job) and has_free_slot(job_id):
            return True
        time.sleep(0.05)


def has_free_slot(job_id: str) -> bool:
    """Return whether a slot is free for a job; earlier jobs come first, as by LSF's default."""
    slots = float(os.environ.get("LSF_DOUBLE_SLOTS", "inf"))
    if slots == float("inf"):
        return True
    found = all_jobs()
    earlier = [job for job in found if split_id(job["id"]) < split_id(job_id)]
    waiting = sum(job["stat"] == "PEND" and is_satisfied(job) for job in earlier)
    return sum(job["stat"] in STARTED for job in found) + waiting < slots


def start(job_id: str) -> subprocess.Popen[bytes] | None:
    with locked():
        job = load(job_id)
        assert job is not None
        if job["stat"] != "PEND" or not has_free_slot(job_id):
            return None
        number, index = map(str, split_id(job_id))
        variables = {**os.environ, "LSB_JOBID": number, "LSB_JOBINDEX": index}
        variables |= {"LSB_JOBNAME": str(job["name"]), "LSB_HOSTS": HOST}
        script = FOLDER / f"{number}.script"
        hidden = os.environ.get("LSF_DOUBLE_HIDDEN")
        if hidden:
            script.write_text(script.read_text().replace(hidden, f"{hidden}.not-on-this-host"))
        logs = [str(job[key]).replace("%J", number).replace("%I", index) for key in ("out", "err")]
        with open(logs[0], "ab") as out, open(logs[1], "ab") as err:
            process = subprocess.Popen(
                ["/bin/sh", str(script)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=variables,
                cwd=str(job["folder"]),
                start_new_session=True,
                preexec_fn=default_signals,
            )
        save({**job, "stat": "RUN", "pid": process.pid, "started": time.time()})
        return process


def default_signals() -> None:
    """Give a job default signals, whatever bsub inherited."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def supervise(job_id: str, process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a job, enforce its limits, and return its exit code."""
    job = load(job_id)
    assert job is not None
    started, limited = time.monotonic(), False
    while process.poll() is None:
        time.sleep(0.05)
        if limited:
            continue
        if job["seconds"] is not None and time.monotonic() - started > job["seconds"]:
            limited = True
            update(job_id, reason="TERM_RUNLIMIT")
            send(process.pid, signal.SIGUSR2)
            end(process.pid, after=10 * float(os.environ.get("LSF_DOUBLE_MINUTE", "60")))
        elif job["memory"] is not None and memory_of(process.pid) > job["memory"]:
            limited = True
            update(job_id, reason="TERM_MEMLIMIT")
            end(process.pid)
        elif (FOLDER / "host-down").exists():
            send(process.pid, signal.SIGKILL)
            process.wait()
            while (FOLDER / "host-down").exists():
                time.sleep(0.05)
            update(job_id, reason="TERM_ZOMBIE")
            return 143
    code = process.returncode
    return 128 - code if code < 0 else code


def memory_of(group: int) -> float:
    """Return the resident memory of all processes of a process group, in MB."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(path.name)) == group:
                pages += int((path / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def send(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def end(group: int, after: float = 0.0) -> None:
    """Start to end a job as LSF does: by SIGINT, then SIGTERM, then SIGKILL.

    Args:
        group: The job's process group.
        after: How long to wait before the first signal, in seconds.
    """
    if os.fork():
        return
    os.setsid()
    time.sleep(after)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if not send(group, number):
            break
        time.sleep(KILL_INTERVAL)
    os._exit(0)


# Commands for submitted jobs.


def bkill(argv: list[str]) -> int:
    opts, words = options({"-J": 1}, argv)
    wait_for_daemon()
    if words == ["0"]:  # all jobs, or those of the name
        words = [str(job["id"]) for job in chosen(opts, []) if not job["ended"]]
        if not words:
            return fail("Job <0>: No matching job found")
    if not words:  # bkill without ids kills the user's last job
        words = [str(job["id"]) for job in jobs() if not job["ended"]][-1:]
    return end_jobs(words, "")


def brequeue(argv: list[str]) -> int:
    opts, words = options({"-H": 0}, argv)
    wait_for_daemon()
    return end_jobs(words, "PSUSP" if "-H" in opts else "PEND")


def end_jobs(words: list[str], requeue: str) -> int:
    """End jobs by their ids, and return the exit code of the command.

    The number of an array stands for its unfinished elements.
    """
    result = 0
    for word in words:
        found = [str(job["id"]) for job in elements(int(word) if word.isdigit() else 0)]
        if found and found != [word]:
            unfinished = [name for name in found if not (load(name) or {}).get("ended")]
            for name in unfinished:
                end_job(name, requeue, quiet=True)
            if unfinished:
                print(f"Job <{word}> is being terminated")
                continue
        result = end_job(word if found in ([], [word]) else found[0], requeue) or result
    return result


def end_job(word: str, requeue: str, quiet: bool = False) -> int:
    """End a job by its id, and return the exit code of the command.

    Args:
        word: The id.
        requeue: The job's state after its requeue; empty to kill the job.
        quiet: Whether to print no message of success.
    """
    with locked():
        job = load(word) if split_id(word)[0] else None
        if job is None:
            return fail(f"Job <{word}>: No matching job found")
        if job["stat"] in ("DONE", "EXIT"):
            return fail(f"Job <{word}>: Job has already finished")
        group = int(job.get("pid") or 0)
        if requeue and not group:
            return fail(f"Job <{word}>: Job has not started yet")
        if requeue:
            save({**job, "requeue": requeue})
        elif group and (FOLDER / "host-down").exists():
            save({**job, "reason": "TERM_OWNER", "stat": "ZOMBI"})
        elif group:
            save({**job, "reason": "TERM_OWNER"})
        else:
            ended = {"stat": "EXIT", "code": 130, "reason": "TERM_OWNER", "ended": time.time()}
            save({**job, **ended})
    if not quiet:
        print(f"Job <{word}> is being {'requeued' if requeue else 'terminated'}")
    if group:
        end(group)
    return 0


def bstop(argv: list[str]) -> int:
    """Suspend jobs: a pending job becomes PSUSP, a started job USUSP."""
    return control(argv, {"PEND": "PSUSP", "RUN": "USUSP", "SSUSP": "USUSP"}, "stopped")


def bresume(argv: list[str]) -> int:
    return control(argv, {"PSUSP": "PEND", "USUSP": "RUN"}, "resumed")


def control(argv: list[str], states: dict[str, str], action: str) -> int:
    """Change states of jobs, suspend or resume their processes, and return the exit code.

    Args:
        argv: The arguments of the command.
        states: The next state of a job in each state that the command changes.
        action: The action in the command's output.
    """
    _, words = options({}, argv)
    wait_for_daemon()
    result = 0
    for word in words:
        names = [str(job["id"]) for job in elements(int(word) if word.isdigit() else 0)] or [word]
        with locked():
            found = [job for job in map(load, names) if job is not None]
            for job in found:
                if job["stat"] not in states:
                    continue
                save({**job, "stat": states[job["stat"]]})
                if job["stat"] in STARTED:
                    send(
                        int(job["pid"]),
                        signal.SIGSTOP if action == "stopped" else signal.SIGCONT,
                    )
        if not found:
            result = fail(f"Job <{word}>: No matching job found")
        elif all(job["stat"] in ("DONE", "EXIT") for job in found):
            result = fail(f"Job <{word}>: Job has already finished")
        else:
            print(f"Job <{word}> is being {action}")
    return result


def chosen(opts: dict[str, str], words: list[str]) -> list[Job]:
    found = []
    for job in jobs():
        number, index = split_id(job["id"])
        if words and str(job["id"]) not in words and str(number) not in words:
            continue
        if "-P" in opts and job["project"] != opts["-P"]:
            continue
        name = str(job["name"])
        names = {name, name.removesuffix(f"[{index}]")}
        pattern = opts.get("-J", "*").replace("[", "[[]")
        if not any(fnmatch.fnmatchcase(one, pattern) for one in names):
            continue
        if "-a" not in opts and not words and job["stat"] in ("DONE", "EXIT"):
            continue
        found.append(job)
    for word in words:
        if not any(word in (str(job["id"]), str(split_id(job["id"])[0])) for job in found):
            fail(f"Job <{word}> is not found")
    return found


def bjobs(argv: list[str]) -> int:
    opts, words = options(BJOBS, argv)
    wait_for_daemon()
    found = chosen(opts, words)
    if not found:
        return 255 if words else fail("No job found")
    if "-o" in opts:
        columns = opts["-o"].split()
        print(" ".join(name.upper() for name in columns))
        for job in found:
            print(" ".join(column(job, name) for name in columns))
    elif "-l" in opts or "-UF" in opts:
        print(f"\n{'-' * 78}\n\n".join(long_form(job, wide="-UF" in opts) for job in found))
    else:
        print("JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME")
        for job in found:
            host = HOST if job["stat"] not in ("PEND", "PSUSP") else ""
            print(
                f"{shown_id(job):<7} {USER:<7} {state_of(job):<5} normal     {HOST:<11} {host:<11}"
                f" {job['name']} Nov 21 03:00"
            )
    return 255 if len(found) < len(words) else 0


def shown_id(job: Job) -> str:
    """Return the column JOBID: without the index, unless lsf.conf has LSB_BJOBS_DISPLAY_ENH."""
    return str(job["id"] if configured("LSB_BJOBS_DISPLAY_ENH") else split_id(job["id"])[0])


def state_of(job: Job) -> str:
    is_lost = job["stat"] in STARTED and (FOLDER / "host-down").exists()
    return "UNKWN" if is_lost else str(job["stat"])


def column(job: Job, name: str) -> str:
    known = {
        "jobid": shown_id(job),
        "jobindex": split_id(job["id"])[1],
        "user": USER,
        "stat": state_of(job),
        "queue": "normal",
        "from_host": HOST,
        "exec_host": HOST if job["stat"] not in ("PEND", "PSUSP") else "-",
        "job_name": job["name"],
        "proj_name": job["project"],
    }
    if name not in known:
        sys.exit(fail(f"{name}: invalid field name"))
    return str(known[name])


def stamp(seconds: float) -> str:
    """Return a time as bjobs prints it: without a year, in the time zone of the variable TZ."""
    return time.strftime("%a %b %e %H:%M:%S", time.localtime(seconds))


def long_form(job: Job, wide: bool) -> str:
    text = f"Job <{job['id']}>, Job Name <{job['name']}>, User <{USER}>, Project"
    text += f" <{job['project']}>, Status <{state_of(job)}>, Queue <normal>"
    text += f"\n{stamp(job['submitted'])}: Submitted from host <{HOST}>, CWD </>;"
    if job["started"]:
        text += f"\n{stamp(job['started'])}: Started 1 Task(s) on Host(s) <{HOST}>;"
    if job["stat"] == "DONE":
        text += f"\n{stamp(job['ended'])}: Done successfully. The CPU time used is 0.1 seconds."
    if job["stat"] == "EXIT":
        now, reason = stamp(job["ended"]), job["reason"]
        text += f"\n{now}: Exited with exit code {job['code']}. The CPU time used is 0.1 seconds."
        text += f"\n{now}: Completed <exit>"
        is_shown = reason and not os.environ.get("LSF_DOUBLE_NO_REASONS")
        text += f"; {reason}: {REASONS[reason]}." if is_shown else "."
    elif job["stat"] in ("PEND", "PSUSP"):
        text += f"\n PENDING REASONS:\n {pending_reason(job)};\n"
    if wide:
        return text
    # the long form breaks lines at column 80, even within words
    lines = []
    for line in text.split("\n"):
        lines.append(line[:79])
        lines += [" " * 21 + line[at : at + 58] for at in range(79, len(line), 58)]
    return "\n".join(lines)


def pending_reason(job: Job) -> str:
    if job["stat"] == "PSUSP":
        return "The job was suspended by the user while pending"
    if job["begin"]:
        return "The job has a specified start time"
    if not is_satisfied(job):
        return "Job dependency condition not satisfied"
    return "Job's requirements for resource reservation not satisfied: 1 host"


def bhist(argv: list[str]) -> int:
    _, words = options({"-l": 0, "-a": 0}, argv)
    for job in chosen({"-a": "yes"}, words):
        print(long_form(job, wide=False))
    return 0


def bhosts(argv: list[str]) -> int:
    found, _ = options({"-noheader": 0, "-o": 1}, argv)
    values = {"hname": HOST, "max": os.cpu_count(), "ng": 0, "status": "ok", "ngpus": 0}
    print(*(values.get(name, "-") for name in found["-o"].split()))
    return 0


PROGRAMS = {
    "bsub": bsub,
    "bjobs": bjobs,
    "bkill": bkill,
    "bparams": bparams,
    "brequeue": brequeue,
    "bstop": bstop,
    "bresume": bresume,
    "bhist": bhist,
    "bhosts": bhosts,
}

if __name__ == "__main__":
    if sys.argv[1] in PROGRAMS:
        with open(FOLDER / "calls.log", "a") as log:
            log.write(shlex.join(sys.argv[1:]) + "\n")
    sys.exit({**PROGRAMS, "run": run, "run_array": run_array}[sys.argv[1]](sys.argv[2:]))
