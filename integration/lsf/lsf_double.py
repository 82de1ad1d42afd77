"""A double of LSF with one host: bsub, bjobs, bkill, bhist and bhosts, which really run the jobs.

IBM's LSF is not available for tests. The double has only options that IBM documents and that LSF
has had for long. It refuses other options as LSF does, with a usage message and exit code 255, and
its output has LSF's formats. It lacks queues and limits, and its host has any number of slots.

    lsf_double.py bsub|bjobs|bkill|bhist|bhosts ...

``LSF_DOUBLE_DIR`` is the directory of its state: a file ``<id>.json`` for each job.
``LSF_DOUBLE_OLD=1`` makes it an old LSF, whose bjobs has neither ``-o`` nor ``-UF``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["LSF_DOUBLE_DIR"])
OLD = bool(os.environ.get("LSF_DOUBLE_OLD"))
USER = os.environ.get("USER") or str(os.getuid())
HOST = os.uname().nodename

# 1 for an option with a value, 0 for a flag
BSUB = {"-P": 1, "-J": 1, "-q": 1, "-n": 1, "-m": 1, "-o": 1, "-e": 1, "-i": 1, "-w": 1, "-W": 1}
BSUB |= {"-M": 1, "-R": 1, "-r": 0, "-K": 0, "-H": 0}
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


def load(job_id: int) -> dict[str, object] | None:
    try:
        return json.loads((FOLDER / f"{job_id}.json").read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None


def save(job: dict[str, object]) -> None:
    path = FOLDER / f"{job['id']}.json"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(job))
    partial.replace(path)


def update(job_id: int, **values: object) -> dict[str, object]:
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


def jobs() -> list[dict[str, object]]:
    ids = sorted(int(path.stem) for path in FOLDER.glob("*.json") if path.stem.isdigit())
    return [job for job in map(load, ids) if job is not None]


def bsub(argv: list[str]) -> int:
    opts, command = options(BSUB, argv)
    if opts.get("-q", "normal") != "normal":
        return fail(f"{opts['-q']}: No such queue. Job not submitted.")
    script = " ".join(command) if command else sys.stdin.read()
    with locked():
        job_id = max((int(str(job["id"])) for job in jobs()), default=100) + 1
        job = {
            "id": job_id,
            "stat": "PSUSP" if "-H" in opts else "PEND",
            "project": opts.get("-P", "default"),
            "name": opts.get("-J", script.split("\n")[0][:40]),
            "after": opts.get("-w", ""),
            "out": opts.get("-o", "/dev/null"),
            "err": opts.get("-e", "/dev/null"),
            "code": None,
            "killed": False,
            "folder": os.getcwd(),
        }
        save(job)
    path = FOLDER / f"{job_id}.script"
    path.write_text(script)
    if "-H" not in opts:
        subprocess.Popen(
            [sys.executable, __file__, "run", str(job_id)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    print(f"Job <{job_id}> is submitted to default queue <normal>.")
    return 0


def run(argv: list[str]) -> int:
    """Wait for the job's condition, run the job, and save how it ended, as LSF's sbatchd does."""
    job_id = int(argv[0])
    job = load(job_id)
    assert job is not None
    wanted = re.fullmatch(r"started\((.+)\)", str(job["after"]))
    if job["after"] and wanted is None:
        update(job_id, stat="EXIT", code=255)
        return 1
    while wanted:
        job = load(job_id)
        assert job is not None
        if job["stat"] == "EXIT":
            return 0
        if any(j["name"] == wanted[1] and j["stat"] not in ("PEND", "PSUSP") for j in jobs()):
            break
        time.sleep(0.05)
    with locked():
        job = load(job_id)
        assert job is not None
        if job["stat"] != "PEND":
            return 0
        variables = {**os.environ, "LSB_JOBID": str(job_id), "LSB_JOBINDEX": "0"}
        variables |= {"LSB_JOBNAME": str(job["name"]), "LSB_HOSTS": HOST}
        with open(str(job["out"]), "ab") as out, open(str(job["err"]), "ab") as err:
            process = subprocess.Popen(
                ["/bin/sh", str(FOLDER / f"{job_id}.script")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=variables,
                cwd=str(job["folder"]),
                start_new_session=True,
            )
        save({**job, "stat": "RUN", "pid": process.pid})
    code = process.wait()
    code = 128 - code if code < 0 else code
    update(job_id, stat="DONE" if code == 0 else "EXIT", code=code)
    return 0


def bkill(argv: list[str]) -> int:
    _, words = options({}, argv)
    result = 0
    for word in words:
        job = load(int(word)) if word.isdigit() else None
        if job is None:
            result = fail(f"Job <{word}>: No matching job found")
            continue
        if job["stat"] in ("DONE", "EXIT"):
            result = fail(f"Job <{word}>: Job has already finished")
            continue
        with locked():
            job = load(int(word))
            assert job is not None
            if job["stat"] in ("PEND", "PSUSP"):
                save({**job, "stat": "EXIT", "code": 130, "killed": True})
                pid = 0
            else:
                save({**job, "killed": True})
                pid = int(str(job.get("pid", 0)))
        print(f"Job <{word}> is being terminated")
        if pid:
            end(pid)
    return result


def end(pid: int) -> None:
    """End a job as LSF does: by SIGINT, SIGTERM, and SIGKILL after a while."""
    if os.fork():
        return
    os.setsid()
    for number, seconds in ((signal.SIGINT, 0.2), (signal.SIGTERM, 3.0), (signal.SIGKILL, 0.0)):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            break
        time.sleep(seconds)
    os._exit(0)


def chosen(opts: dict[str, str], words: list[str]) -> list[dict[str, object]]:
    found = []
    for job in jobs():
        if words and str(job["id"]) not in words:
            continue
        if "-P" in opts and job["project"] != opts["-P"]:
            continue
        if "-J" in opts and job["name"] != opts["-J"]:
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
    found = chosen(opts, words)
    if not found:
        return 255 if words else fail("No job found")
    if "-o" in opts:
        columns = opts["-o"].split()
        print(" ".join(name.upper() for name in columns))
        for job in found:
            print(" ".join(column(job, name) for name in columns))
    elif "-l" in opts or "-UF" in opts:
        for job in found:
            print(long_form(job, wide="-UF" in opts))
    else:
        print("JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME")
        for job in found:
            host = HOST if job["stat"] not in ("PEND", "PSUSP") else ""
            print(
                f"{job['id']:<7} {USER:<7} {job['stat']:<5} normal     {HOST:<11} {host:<11}"
                f" {job['name']} Nov 21 03:00"
            )
    return 255 if len(found) < len(words) else 0


def column(job: dict[str, object], name: str) -> str:
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


def long_form(job: dict[str, object], wide: bool) -> str:
    text = f"Job <{job['id']}>, Job Name <{job['name']}>, User <{USER}>, Project"
    text += f" <{job['project']}>, Status <{job['stat']}>, Queue <normal>"
    if job["stat"] == "EXIT" and job["killed"]:
        text += f"\nnow: Exited with exit code {job['code']}. The CPU time used is 0.1 seconds."
        text += "\nnow: Completed <exit>; TERM_OWNER: job killed by owner."
    elif job["stat"] == "EXIT":
        text += f"\nnow: Exited with exit code {job['code']}. The CPU time used is 0.1 seconds."
        text += "\nnow: Completed <exit>."
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


PROGRAMS = {"bsub": bsub, "bjobs": bjobs, "bkill": bkill, "bhist": bhist, "bhosts": bhosts}

if __name__ == "__main__":
    sys.exit({**PROGRAMS, "run": run}[sys.argv[1]](sys.argv[2:]))
