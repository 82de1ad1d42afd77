"""What is checked, each check one session: ``nox -l`` lists them, ``nox -s NAME`` runs one.

The sessions share ``.venv`` where they can (``tools/bootstrap.py`` makes it, and does nothing when
it is up to date); those that must not see the workspace make environments of their own in
``.nox``. Arguments after ``--`` reach the session's main program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import bootstrap  # noqa: E402
import distributions  # noqa: E402
import environments  # noqa: E402

nox.options.sessions = ["lint", "types", "tests", "isolation", "docs"]
nox.options.default_venv_backend = "none"

REPORTS = ROOT / ".nox" / "reports"
# PyTorch for the integration tests is there for this Python.
INTEGRATION_PYTHON = "3.11"


def run(session: nox.Session, *command: str, environment: Path = bootstrap.ENVIRONMENT) -> None:
    """Runs a program of ``environment`` as if that were activated."""
    program = environment / "bin" / command[0]
    variables = bootstrap.activated(environment)
    session.run(str(program), *command[1:], env=variables, external=True)


def run_all(session: nox.Session, *commands: list[str]) -> None:
    """Runs every command, and only then fails if one of them did."""
    failed = []
    for command in commands:
        try:
            run(session, *command)
        except CommandFailed:
            failed.append(" ".join(command))
    if failed:
        session.error("; ".join(failed))


def no_interpreter(session: nox.Session, version: str) -> NoReturn:
    """Fails the session where ``CI`` is set, and skips it elsewhere."""
    missing = f"Python {version} is neither on PATH nor among pyenv's versions"
    if os.environ.get("CI"):
        session.error(missing)
    session.skip(missing)


def install(
    session: nox.Session, name: str, version: str, requirements: Sequence[Path] = ()
) -> Path:
    """Makes ``.nox/NAME`` with that version of Python, or brings it up to date.

    A version that isn't there fails the session where ``CI`` is set, and skips it elsewhere.
    """
    python = environments.interpreter(version)
    if python is None:
        no_interpreter(session, version)
    environment = ROOT / ".nox" / name
    try:
        bootstrap.install("test", environment, python, requirements)
    except environments.EnvironmentFailure as failure:
        session.error(str(failure))
    return environment


def workspace(session: nox.Session) -> None:
    """Brings ``.venv`` up to date."""
    try:
        bootstrap.install("dev")
    except environments.EnvironmentFailure as failure:
        session.error(str(failure))


def report(name: str) -> str:
    """pytest's option for a report that tools/summary.py counts."""
    return f"--junit-xml={REPORTS / name}.xml"


@nox.session
def lint(session: nox.Session) -> None:
    """ruff with its security rules, the floors, declared imports, stamped files."""
    workspace(session)
    run_all(
        session,
        ["ruff", "check", *session.posargs],
        ["ruff", "format", "--check"],
        ["python", "tools/packages.py", "check"],
        ["python", "tools/aws_resources.py", "check"],
        ["lint-imports", "--no-logo"],
        ["python", "tools/check_imports.py"],
        ["python", "tools/faces.py", "check"],
    )


@nox.session
def types(session: nox.Session) -> None:
    """mypy --strict over everything that ships, and over the tools."""
    workspace(session)
    sources = [str(member.source) for member in distributions.members() if member.exists]
    # Each src/ is a root of its own: a module is checked under the name it is imported by.
    os.environ["MYPYPATH"] = os.pathsep.join(str(Path(source).parent) for source in sources)
    run(session, "mypy", *sources, "tools", "noxfile.py", "examples", *session.posargs)


@nox.session
@nox.parametrize("version", [nox.param(version, id=version) for version in distributions.PYTHONS])
def tests(session: nox.Session, version: str) -> None:
    """Every package's tests, on each Python that is supported."""
    environment = install(session, f"tests-{version}", version)
    name = f"tests-{version}"
    run(session, "pytest", "-q", report(name), *session.posargs, environment=environment)


@nox.session
def isolation(session: nox.Session) -> None:
    """Each distribution as a wheel, alone with what it declares: imported, and tested."""
    workspace(session)
    run(session, "python", "tools/isolation.py", "--reports", str(REPORTS), *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Links, commands and examples of the documentation; every hook; upstream's public names."""
    workspace(session)
    run_all(
        session,
        ["python", "tools/check_docs.py", *session.posargs],
        ["python", "tools/public_names.py", "check"],
    )


@nox.session
def integration(session: nox.Session) -> None:
    """Stories through the command against real services: -- local torch trackers ... picks."""
    folders = sorted({path.parent.name for path in ROOT.glob("integration/*/test_*.py")})
    chosen = [argument for argument in session.posargs if not argument.startswith("-")] or folders
    unknown = [name for name in chosen if name not in folders]
    if unknown:
        session.error(f"no integration tests for {', '.join(unknown)}; there are {folders}")
    files = [ROOT / "integration" / f"requirements-{name}.txt" for name in chosen]
    files = [file for file in files if file.exists()]
    environment = install(session, "integration", INTEGRATION_PYTHON, files)
    options = [argument for argument in session.posargs if argument.startswith("-")]
    paths = [f"integration/{name}" for name in chosen]
    name = "-".join(["integration", *(chosen if chosen != folders else [])])
    run(session, "pytest", report(name), *options, *paths, environment=environment)


@nox.session
def clients(session: nox.Session) -> None:
    """Real clients from PyPI with our torchx in the place of theirs: -- nemo_run ax ... picks."""
    python = environments.interpreter(INTEGRATION_PYTHON)
    if python is None:
        no_interpreter(session, INTEGRATION_PYTHON)
    workspace(session)
    options = ["--python", str(python), "--reports", str(REPORTS)]
    run(session, "python", "tools/clients.py", *options, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The design's figures, beside the released peer; writes docs/benchmarks.md."""
    workspace(session)
    run(session, "python", "tools/bench/run.py", *session.posargs)
