"""Proves that each distribution works with exactly what it declares.

Builds a wheel of every member of the workspace, and then for each of them, in a fresh virtual
environment of its own:

1. installs the wheel, with the dependencies it declares and nothing else;
2. imports every one of its modules;
3. adds pytest, hypothesis and the table's ``test`` requirements, and runs its tests.

``python tools/isolation.py [DISTRIBUTION ...]``. Third-party wheels are fetched once and kept in
``.nox/isolation``, so that an environment is made without asking an index.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import distributions
import environments
import verification
from distributions import ROOT

WORK = ROOT / ".nox" / "isolation"
OUR_WHEELS = WORK / "wheels"
THIRD_PARTY = WORK / "third-party"
TEST_REQUIREMENTS = ("pytest>=9.0", distributions.HYPOTHESIS)
WORKSPACE = Path(sys.prefix)
IMPORT_ALL = ROOT / "tools" / "import_all.py"


def build(distribution: distributions.Distribution) -> None:
    """Builds the wheel of ``distribution`` into :data:`OUR_WHEELS`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(OUR_WHEELS)]
    verification.run(command, cwd=distribution.folder)


def fetch(members: list[distributions.Distribution]) -> None:
    """Fetches what the members need from elsewhere, unless that was done for the same list."""
    wanted = {*TEST_REQUIREMENTS}
    for member in members:
        wanted.update(name for name in (*member.others, *member.test) if is_third_party(name))
    stamp = THIRD_PARTY / "requirements.sha256"
    digest = hashlib.sha256("\n".join([sys.version, *sorted(wanted)]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text("ascii") == digest:
        return
    shutil.rmtree(THIRD_PARTY, ignore_errors=True)
    THIRD_PARTY.mkdir(parents=True)
    environments.pip(WORKSPACE, ["wheel", "-q", "-w", str(THIRD_PARTY), *sorted(wanted)])
    stamp.write_text(digest, "ascii")


def is_third_party(requirement: str) -> bool:
    return requirement.partition("[")[0] not in distributions.BY_NAME


def install(environment: Path, names: list[str]) -> None:
    sources = [f"--find-links={OUR_WHEELS}", f"--find-links={THIRD_PARTY}"]
    environments.pip(
        environment, ["install", "-q", "--no-index", *sources, *names], pip_from=WORKSPACE
    )


def verify(distribution: distributions.Distribution, reports: Path) -> str:
    """Runs all three steps for ``distribution``; a line of what was seen.

    Raises:
        verification.Failed: A step failed.
        environments.EnvironmentFailure: Something can't be installed.
    """
    environment = WORK / "environments" / distribution.name
    python = str(environments.python_in(environment))
    environments.create(environment, with_pip=False)
    install(environment, [distribution.name])
    names = [distribution.module, str(environment), *distribution.optional]
    imported = verification.run([python, "-I", str(IMPORT_ALL), *names], cwd=WORK)
    tests = distribution.folder / "tests"
    if not any(tests.glob("**/test_*.py")):
        return f"{imported.strip()}; no tests"
    install(environment, [*TEST_REQUIREMENTS, *distribution.test])
    # The script and not `python -m pytest`, which would put the working directory on sys.path.
    command = [str(environment / "bin" / "pytest"), "-q", str(tests)]
    command += [
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
    ]
    command += ["-p", "no:cacheprovider", "--junit-xml", str(reports / f"{distribution.name}.xml")]
    output = verification.run(command, cwd=WORK, environment=environment)
    return f"{imported.strip()}; {output.strip().splitlines()[-1].strip('= ')}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("distributions", nargs="*", metavar="DISTRIBUTION")
    parser.add_argument("--reports", type=Path, default=WORK / "reports")
    arguments = parser.parse_args(argv)
    members = distributions.members()
    unknown = set(arguments.distributions) - {member.name for member in members}
    if unknown:
        parser.error(f"no such member of the workspace: {', '.join(sorted(unknown))}")
    chosen = [
        m for m in members if m.name in arguments.distributions or not arguments.distributions
    ]

    shutil.rmtree(OUR_WHEELS, ignore_errors=True)
    OUR_WHEELS.mkdir(parents=True)
    reports = arguments.reports.resolve()
    reports.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        try:
            list(pool.map(build, members))
            fetch(members)
        except (verification.Failed, environments.EnvironmentFailure) as failure:
            print(failure)
            return 1
    by_name = {member.name: member for member in chosen}
    return verification.verify_all(
        "isolation", by_name, lambda name: verify(by_name[name], reports)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
