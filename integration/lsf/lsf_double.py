"""A double of LSF with one host: bsub, bjobs, bkill and others, which really run the jobs.

IBM's LSF is not available for tests. The double has only options that IBM documents. It refuses
other options as LSF does, with a usage message and exit code 255, and its output has LSF's formats.
Its host has any number of slots, and it has one queue, ``normal``. A job has the environment, the
directory and the umask of its bsub, as the man page of bsub says ("file creation mask").

    lsf_double.py bsub|bjobs|bkill|brequeue|bresume|bhist|bhosts ...

``LSF_DOUBLE_DIR`` is the directory of its state: a file ``<id>.json`` for each job, and
``calls.log`` with a line for each command. While the directory has a file ``down``, the daemon does
not answer. These variables change the double:

- ``LSF_DOUBLE_VERSION``: the version that ``bsub -V`` prints, such as ``10.1.0.8``. IBM's release
  notes say what a version has: units in resource requirements since 10.1.0.2, ``/host`` since
  10.1.0.9. A version without digits stands for a compatible system: no ``-gpu``, no units.
- ``LSF_DOUBLE_OLD=1``: bjobs has neither ``-o`` nor ``-UF``.
- ``LSF_DOUBLE_SLOW``: bsub prints the job's id this number of seconds after it accepted the job.
- ``LSF_DOUBLE_MINUTE``: length of a minute of a run limit, in seconds.
- ``LSF_DOUBLE_CLEAN_PERIOD``: after this number of seconds, LSF forgets an ended job.
- ``LSF_DOUBLE_PROJECTS``: an esub refuses every other project.
- ``LSF_DOUBLE_HIDDEN``: the host does not have this directory.
- ``$LSF_ENVDIR/lsf.conf``: ``LSF_UNIT_FOR_LIMITS``, as in LSF.
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
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
REASONS = {
    "TERM_OWNER": "job killed by owner",
    "TERM_RUNLIMIT": "job killed after reaching LSF run time limit",
    "TERM_MEMLIMIT": "job killed after reaching LSF memory usage limit",
}

# 1 for an option with a value, 0 for a flag
BSUB = {"-P": 1, "-J": 1, "-q": 1, "-n": 1, "-m": 1, "-o": 1, "-e": 1, "-i": 1, "-w": 1, "-W": 1}
BSUB |= {"-M": 1, "-R": 1, "-r": 0, "-K": 0, "-H": 0, "-V": 0}
if NUMBERS >= (10, 1):
    BSUB |= {"-gpu": 1}
BJOBS = {"-a": 0, "-P": 1, "-w": 0, "-l": 0, "-u": 1, "-J": 1}
if not OLD:
    BJOBS |= {"-o": 1, "-UF": 0}


def fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 255


def options(known: dict[str, int], argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options, and the arguments after them."""
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
    """Wait while the batch daemon is down, with the message that LSF's commands print."""
    while (FOLDER / "down").exists():
        print("Cannot connect to LSF. Please wait ...", file=sys.stderr, flush=True)
        time.sleep(0.5)


def load(job_id: int) -> Job | None:
    try:
        return json.loads((FOLDER / f"{job_id}.json").read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None


def save(job: Job) -> None:
    path = FOLDER / f"{job['id']}.json"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(job))
    partial.replace(path)


def update(job_id: int, **values: object) -> Job:
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


def all_jobs() -> list[Job]:
    ids = sorted(int(path.stem) for path in FOLDER.glob("*.json") if path.stem.isdigit())
    return [job for job in map(load, ids) if job is not None]


def jobs() -> list[Job]:
    """Return the jobs that LSF has not forgotten."""
    period = float(os.environ.get("LSF_DOUBLE_CLEAN_PERIOD", "inf"))
    oldest = time.time() - period
    return [job for job in all_jobs() if not job["ended"] or job["ended"] > oldest]


# -- bsub


def bsub(argv: list[str]) -> int:
    opts, command = options(BSUB, argv)
    if "-V" in opts:
        name = "IBM Spectrum LSF Standard" if NUMBERS >= (10,) else "Platform LSF"
        compatible = "A batch system with LSF's commands"
        print(f"{name} {VERSION}, May 4 2023" if NUMBERS > (0,) else compatible, file=sys.stderr)
        return 0
    wait_for_daemon()
    if opts.get("-q", "normal") != "normal":
        return fail(f"{opts['-q']}: No such queue. Job not submitted.")
    project = opts.get("-P") or os.environ.get("LSB_DEFAULTPROJECT") or "default"
    known = os.environ.get("LSF_DOUBLE_PROJECTS", "").split()
    if known and project not in known:
        print(f"project {project} is not a known project", file=sys.stderr)
        return fail("Request aborted by esub. Job not submitted.")
    requirement = opts.get("-R", "")
    memory = re.search(r"rusage\[mem=([^\],:]+)", requirement)
    after = dependency(opts.get("-w", ""))
    script = " ".join(command) if command else sys.stdin.read()
    with locked():
        job_id = max((int(str(job["id"])) for job in all_jobs()), default=100) + 1
        job = {
            "id": job_id,
            "stat": "PSUSP" if "-H" in opts else "PEND",
            "project": project,
            "name": opts.get("-J", script.split("\n")[0][:40]),
            "after": after,
            "out": opts.get("-o", "/dev/null"),
            "err": opts.get("-e", "/dev/null"),
            "code": None,
            "reason": "",
            "ended": None,
            "requeue": "",
            "folder": os.getcwd(),
            "gpu": gpus(opts["-gpu"]) if "-gpu" in opts else 0,
            "reserved": megabytes(memory[1], 1.0) if memory else None,
            "memory": megabytes(opts["-M"], 1 / 1024) if "-M" in opts else None,
            "seconds": seconds(opts["-W"]) if "-W" in opts else None,
        }
        save(job)
    (FOLDER / f"{job_id}.script").write_text(script)
    subprocess.Popen(
        [sys.executable, __file__, "run", str(job_id)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(float(os.environ.get("LSF_DOUBLE_SLOW", "0")))
    if "BSUB_QUIET" not in os.environ:
        print(f"Job <{job_id}> is submitted to default queue <normal>.", flush=True)
    return 0


def dependency(expression: str) -> int:
    """Return the id of the job whose start a dependency expression waits for; 0 for none."""
    if not expression:
        return 0
    form = re.fullmatch(r'started\((?:(\d+)|"([^"]+)"|([^"\d()][^"()]*))\)', expression)
    if form is None:
        sys.exit(fail(f"{expression}: Bad dependency expression. Job not submitted."))
    name = form[2] or form[3]
    for job in reversed(jobs()):
        if str(job["id"]) == form[1] or job["name"] == name:
            return int(job["id"])
    sys.exit(fail("Dependency condition invalid or never satisfied. Job not submitted."))


def unit_for_limits() -> str:
    try:
        text = Path(os.environ.get("LSF_ENVDIR", "/etc"), "lsf.conf").read_text()
    except OSError:
        return ""
    found = re.search(r"^LSF_UNIT_FOR_LIMITS=(\w+)", text, re.M)
    return found[1] if found else ""


def megabytes(text: str, default_unit: float) -> float:
    """Return an amount of memory in MB.

    Args:
        text: The amount in an option.
        default_unit: MB in the unit of a number without a unit.
    """
    form = re.fullmatch(r"(\d+)([KMGT]B?)?(/(?:host|job|task))?!?", text)
    refused = form and (
        (form[2] and NUMBERS < (10, 1, 0, 2)) or (form[3] and NUMBERS < (10, 1, 0, 9))
    )
    if form is None or refused:
        sys.exit(fail(f"{text}: Bad resource requirement syntax. Job not submitted."))
    unit = form[2] or unit_for_limits()
    return int(form[1]) * (UNITS[unit[0] + "B"] if unit else default_unit)


def gpus(text: str) -> int:
    form = re.match(r"num=(\d+)(/host|/task)?(:|$)", text)
    if form is None or (form[2] and NUMBERS < (10, 1, 0, 9)):
        sys.exit(fail(f"{text}: Bad GPU requirement syntax. Job not submitted."))
    return int(form[1])


def seconds(limit: str) -> float:
    hours, _, minutes = limit.rpartition(":")
    return (int(hours or 0) * 60 + int(minutes)) * float(os.environ.get("LSF_DOUBLE_MINUTE", "60"))


# -- the execution host


def run(argv: list[str]) -> int:
    """Run a job and save how it ended, as LSF's sbatchd does; run it again if it is requeued."""
    job_id = int(argv[0])
    while wait_for_start(job_id):
        process = start(job_id)
        code = supervise(job_id, process) if process is not None else None
        with locked():
            job = load(job_id)
            assert job is not None
            if job["requeue"]:
                save({**job, "stat": job["requeue"], "requeue": "", "reason": "", "pid": 0})
                continue
            if code is not None:
                stat = "DONE" if code == 0 else "EXIT"
                save({**job, "stat": stat, "code": code, "ended": time.time()})
        return 0
    return 0


def wait_for_start(job_id: int) -> bool:
    """Wait until a job may start; return False if it has ended."""
    while True:
        job = load(job_id)
        if job is None or job["stat"] == "EXIT":
            return False
        if job["stat"] == "PEND":
            head = load(job["after"]) if job["after"] else None
            if head is None or head["stat"] not in ("PEND", "PSUSP"):
                return True
        time.sleep(0.05)


def start(job_id: int) -> subprocess.Popen[bytes] | None:
    with locked():
        job = load(job_id)
        assert job is not None
        if job["stat"] != "PEND":
            return None
        variables = {**os.environ, "LSB_JOBID": str(job_id), "LSB_JOBINDEX": "0"}
        variables |= {"LSB_JOBNAME": str(job["name"]), "LSB_HOSTS": HOST}
        script = FOLDER / f"{job_id}.script"
        hidden = os.environ.get("LSF_DOUBLE_HIDDEN")
        if hidden:
            script.write_text(script.read_text().replace(hidden, f"{hidden}.not-on-this-host"))
        with open(str(job["out"]), "ab") as out, open(str(job["err"]), "ab") as err:
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
        save({**job, "stat": "RUN", "pid": process.pid})
        return process


def default_signals() -> None:
    """Give a job default signals, whatever bsub inherited."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def supervise(job_id: int, process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a job, which reaches its limits if it has some; return its exit code."""
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
    code = process.returncode
    return 128 - code if code < 0 else code


def memory_of(group: int) -> float:
    """Return the resident memory of the processes of a group, in MB."""
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
    """End a job as LSF does: by SIGINT, SIGTERM, and SIGKILL after a while.

    Args:
        group: The job's process group.
        after: When to begin, in seconds.
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


# -- commands for submitted jobs


def bkill(argv: list[str]) -> int:
    _, words = options({}, argv)
    wait_for_daemon()
    if not words:  # bkill without ids kills the user's last job
        words = [str(job["id"]) for job in jobs() if not job["ended"]][-1:]
    result = 0
    for word in words:
        result = end_job(word, "") or result
    return result


def brequeue(argv: list[str]) -> int:
    opts, words = options({"-H": 0}, argv)
    wait_for_daemon()
    result = 0
    for word in words:
        result = end_job(word, "PSUSP" if "-H" in opts else "PEND") or result
    return result


def end_job(word: str, requeue: str) -> int:
    """End a job, by its id.

    Args:
        word: The id.
        requeue: State of the job after its end, if it is requeued; empty if it is killed.
    """
    with locked():
        job = load(int(word)) if word.isdigit() else None
        if job is None:
            return fail(f"Job <{word}>: No matching job found")
        if job["stat"] in ("DONE", "EXIT"):
            return fail(f"Job <{word}>: Job has already finished")
        group = int(job.get("pid") or 0)
        if requeue and not group:
            return fail(f"Job <{word}>: Job has not started yet")
        if requeue:
            save({**job, "requeue": requeue})
        elif group:
            save({**job, "reason": "TERM_OWNER"})
        else:
            ended = {"stat": "EXIT", "code": 130, "reason": "TERM_OWNER", "ended": time.time()}
            save({**job, **ended})
    print(f"Job <{word}> is being {'requeued' if requeue else 'terminated'}")
    if group:
        end(group)
    return 0


def bresume(argv: list[str]) -> int:
    _, words = options({}, argv)
    for word in words:
        update(int(word), stat="PEND")
        print(f"Job <{word}> is being resumed")
    return 0


def chosen(opts: dict[str, str], words: list[str]) -> list[Job]:
    found = []
    for job in jobs():
        if words and str(job["id"]) not in words:
            continue
        if "-P" in opts and job["project"] != opts["-P"]:
            continue
        if "-J" in opts and not fnmatch.fnmatchcase(job["name"], opts["-J"]):
            continue
        if "-a" not in opts and not words and job["stat"] in ("DONE", "EXIT"):
            continue
        found.append(job)
    for word in words:
        if not any(str(job["id"]) == word for job in found):
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
                f"{job['id']:<7} {USER:<7} {job['stat']:<5} normal     {HOST:<11} {host:<11}"
                f" {job['name']} Nov 21 03:00"
            )
    return 255 if len(found) < len(words) else 0


def column(job: Job, name: str) -> str:
    known = {
        "jobid": job["id"],
        "user": USER,
        "stat": job["stat"],
        "queue": "normal",
        "from_host": HOST,
        "exec_host": HOST if job["stat"] not in ("PEND", "PSUSP") else "-",
        "job_name": job["name"],
        "proj_name": job["project"],
    }
    if name not in known:
        sys.exit(fail(f"{name}: invalid field name"))
    return str(known[name])


def long_form(job: Job, wide: bool) -> str:
    text = f"Job <{job['id']}>, Job Name <{job['name']}>, User <{USER}>, Project"
    text += f" <{job['project']}>, Status <{job['stat']}>, Queue <normal>"
    if job["stat"] == "EXIT":
        text += f"\nnow: Exited with exit code {job['code']}. The CPU time used is 0.1 seconds."
        reason = job["reason"]
        text += "\nnow: Completed <exit>" + (f"; {reason}: {REASONS[reason]}." if reason else ".")
    elif job["stat"] == "PEND":
        text += "\n PENDING REASONS:\n Job dependency condition not satisfied;\n"
    if wide:
        return text
    # the long form breaks lines at column 80, even within words
    lines = []
    for line in text.split("\n"):
        lines.append(line[:79])
        lines += [" " * 21 + line[at : at + 58] for at in range(79, len(line), 58)]
    return "\n".join(lines)


def bhist(argv: list[str]) -> int:
    _, words = options({"-l": 0, "-a": 0}, argv)
    for job in chosen({"-a": "yes"}, words):
        print(long_form(job, wide=False))
    return 0


def bhosts(argv: list[str]) -> int:
    options({"-noheader": 0, "-o": 1}, argv)
    print(f"{HOST} {os.cpu_count()} 0")
    return 0


PROGRAMS = {
    "bsub": bsub,
    "bjobs": bjobs,
    "bkill": bkill,
    "brequeue": brequeue,
    "bresume": bresume,
    "bhist": bhist,
    "bhosts": bhosts,
}

if __name__ == "__main__":
    if sys.argv[1] in PROGRAMS:
        with open(FOLDER / "calls.log", "a") as log:
            log.write(shlex.join(sys.argv[1:]) + "\n")
    sys.exit({**PROGRAMS, "run": run}[sys.argv[1]](sys.argv[2:]))
