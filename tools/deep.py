"""Run the parts of ``nox -s deep``: ``python tools/deep.py [PART ...]``; without names, all parts.

A part that has passed on the same files is not repeated: ``.nox/reports/deep/PART.json`` has the
digest of the files, the result and the time. Names of services, such as ``slurm``, are parts, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time

from workspace import ROOT, SERVICES

RESULTS = ROOT / ".nox" / "reports" / "deep"

#: The arguments of nox for each part; a service without an entry is `integration -- SERVICE`.
PARTS = {
    "python3.10": ["tests(3.10)"],
    "python3.12": ["tests(3.12)"],
    "python3.13": ["tests(3.13)"],
    "next-python": ["next_python"],
    "isolation": ["isolation"],
    "authors": ["authors"],
    "clients": ["clients"],
    "docs": ["docs"],
    "release": ["release_check"],
    "upgrade": ["upgrade"],
}
#: The variables with the seeds of the tests that choose at random.
SEEDS = ("TORCHX_ATTACK_SEED", "TORCHX_SWEEP_SEED", "TORCHX_SUBMISSION_SEED")


def digest_of_files() -> str:
    """Return a digest of all files that git tracks or would track, with their content."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
    digest = hashlib.sha256()
    for name in sorted(filter(None, names)):
        path = ROOT / os.fsdecode(name)
        if path.is_file():
            digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run(part: str) -> dict[str, object]:
    """Run a part, with random seeds unless the environment has seeds; return its record."""
    seeds = {name: os.environ.get(name) or str(random.randrange(10**6)) for name in SEEDS}  # noqa: S311
    print(f"=== {part}: " + " ".join(f"{name}={seed}" for name, seed in seeds.items()), flush=True)
    arguments = PARTS.get(part, ["integration", "--", part])
    began = time.monotonic()
    nox = [sys.executable, "-m", "nox", "-s", *arguments]
    code = subprocess.run(nox, cwd=ROOT, env={**os.environ, **seeds}, check=False).returncode
    return {"passed": code == 0, "minutes": round((time.monotonic() - began) / 60, 1), **seeds}


def main(parts: list[str]) -> int:
    known = [*PARTS, *SERVICES]
    for part in parts:
        if part not in known:
            print(f"deep: unknown part {part!r}; choose from: {' '.join(known)}", file=sys.stderr)
            return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    files, lines, failed = digest_of_files(), [], False
    for part in parts or known:
        file = RESULTS / f"{part}.json"
        record = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if record.get("files") != files or not record["passed"]:
            record = {"files": files, **run(part)}
            file.write_text(json.dumps(record), "utf-8")
        failed |= not record["passed"]
        outcome = "passed" if record["passed"] else "failed"
        lines.append(f"{part:12} {outcome} {record['minutes']:6} min")
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
