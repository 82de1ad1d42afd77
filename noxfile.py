"""The checks of this repository: ``nox -l`` lists them, ``nox -s NAME`` runs one.

Each session makes its own environment below ``.nox``. Arguments after ``--`` select distributions,
services or clients by name; the others are passed to the session's main program.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).resolve().parent
REPORTS = ROOT / ".nox" / "reports"
WHEELS = ROOT / ".nox" / "dist"
CONSTRAINTS = WHEELS / "constraints.txt"

HATCH = nox.project.load_toml(ROOT / "hatch.toml")
MEMBERS = sorted(
    folder
    for pattern in HATCH["envs"]["default"]["workspace"]["members"]
    for folder in ROOT.glob(pattern)
)
PROJECTS: dict[str, dict[str, Any]] = {
    folder.name: nox.project.load_toml(folder / "pyproject.toml") for folder in MEMBERS
}
PYTHONS = nox.project.python_versions(PROJECTS["torchx-specs"])
SERVICES = sorted({path.parent.name for path in ROOT.glob("integration/*/test_*.py")})
CLIENTS = sorted(path.parent.name for path in ROOT.glob("integration/clients/*/requirements.txt"))

# PyTorch for CPUs exists for this Python only, and only pip finds its file, not uv.
TORCH_PYTHON = "3.11"
TORCH = "integration/requirements-torch.txt"
TORCH_SERVICES = {"slurm", "torch"}
TORCH_CLIENTS = {"ax", "torchft"}
# Distributions that a client needs beside the facade and Kubernetes.
CLIENT_EXTRAS = {"parity": ["torchx-sched-aws"]}
# Some integration tests build distributions and install them.
BUILD = ("pip", "hatchling>=1.27")

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests", "isolation", "docs"]

# pyenv's command python3.10 fails unless that version is activated; its interpreters always work.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
os.environ["PATH"] = os.pathsep.join(
    [os.environ.get("PATH", os.defpath)]
    + [str(path) for version in PYTHONS for path in PYENV.glob(f"versions/{version}.*/bin")]
)
# A test that imports from the checkout must not pass because of the caller's path.
os.environ.pop("PYTHONPATH", None)


def closure(*names: str) -> list[str]:
    """Return the distributions with those of this repository that they depend on."""
    found = list(names)
    for name in found:
        for requirement in PROJECTS[name]["project"]["dependencies"]:
            sibling = requirement.partition("==")[0]
            if sibling in PROJECTS and sibling not in found:
                found.append(sibling)
    return found


def editable(*names: str) -> list[str]:
    """Return the arguments that install distributions editable: all of them, or ``names``."""
    return [part for name in names or PROJECTS for part in ("-e", f"packages/{name}")]


def install_torch(session: nox.Session) -> None:
    """Install PyTorch for CPUs, with pip."""
    session.install("pip")
    session.run_install("python", "-m", "pip", "install", "-q", "-r", TORCH)


def run_all(session: nox.Session, *commands: list[str], **options: Any) -> None:
    """Run every command, then fail if one of them failed."""
    failed = []
    for command in commands:
        try:
            # deptry's success is three lines for each distribution.
            session.run(*command, silent=command[0] == "deptry", **options)
        except CommandFailed:
            failed.append(" ".join(command[:2]))
    if failed:
        session.error("; ".join(failed))


def select(session: nox.Session, this: str, known: list[str]) -> list[str]:
    """Skip a session whose name was not selected; return the arguments that are not names."""
    names = [argument for argument in session.posargs if argument in known]
    if names and this not in names:
        session.skip("not selected")
    return [argument for argument in session.posargs if argument not in known]


def report(name: str) -> str:
    """Return pytest's option for the report that tools/summary.py reads."""
    return f"--junit-xml={REPORTS / name}.xml"


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, import-linter, deptry, the project files, the changelog's fragments."""
    session.install(*editable(), "--group", "lint")
    folders = [f"packages/{name}" for name in PROJECTS]
    run_all(
        session,
        ["ruff", "check", *session.posargs],
        ["ruff", "format", "--check"],
        ["lint-imports", "--no-logo"],
        ["python", "tools/check_projects.py"],
        ["python", "tools/aws_resources.py", "check"],
        ["towncrier", "build", "--draft", "--version", "next"],
        *(["deptry", f"{path}/src", "--config", f"{path}/pyproject.toml"] for path in folders),
    )


@nox.session
def types(session: nox.Session) -> None:
    """Mypy --strict over everything that ships and the tools; stubtest over the facade's stubs."""
    session.install(*editable(), "--group", "dev")
    sources = [f"packages/{name}/src/{name.replace('-', '_')}" for name in PROJECTS]
    # Each src/ is a root of its own: a module is checked under the name it is imported by.
    path = os.pathsep.join(str(folder / "src") for folder in MEMBERS)
    others = ["tools", "noxfile.py", "conftest.py", "examples"]
    config = "--mypy-config-file=pyproject.toml"
    run_all(
        session,
        ["mypy", *sources, *others, *session.posargs],
        ["stubtest", "torchx", config, "--allowlist=tools/stubtest.txt", "--ignore-missing-stub"],
        env={"MYPYPATH": path},
    )


@nox.session
@nox.parametrize("python", [nox.param(version, id=version) for version in PYTHONS])
def tests(session: nox.Session) -> None:
    """The tests of every package, on each supported Python."""
    session.install(*editable(), "--group", "test")
    session.run("pytest", "-q", report(f"tests-{session.python}"), *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """The wheel of each distribution, in .nox/dist."""
    session.install("hatchling")
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir(parents=True)
    for folder in MEMBERS:
        session.chdir(folder)
        session.run("hatchling", "build", "-t", "wheel", "-d", str(WHEELS), silent=True)
    # A distribution's siblings are these wheels, never a release on an index.
    lines = [f"{path.name.partition('-')[0]} @ {path.as_uri()}\n" for path in WHEELS.glob("*.whl")]
    CONSTRAINTS.write_text("".join(lines), "utf-8")


@nox.session(reuse_venv=False, requires=["wheels"])
@nox.parametrize("distribution", [nox.param(name, id=name) for name in PROJECTS])
def isolation(session: nox.Session, distribution: str) -> None:
    """Each distribution with only its declared dependencies: import every module, run its tests."""
    options = select(session, distribution, list(PROJECTS))
    module = distribution.replace("-", "_")
    [wheel] = WHEELS.glob(f"{module}-*.whl")
    session.install(str(wheel), "-c", str(CONSTRAINTS))
    project = PROJECTS[distribution]
    undeclared = project.get("tool", {}).get("deptry", {}).get("per_rule_ignores", {})
    optional = sorted({name for names in undeclared.values() for name in names})
    # Not in the checkout: `import` must find the wheel.
    session.chdir(session.create_tmp())
    session.run("python", "-I", str(ROOT / "tools" / "import_all.py"), module, *optional)
    test = project.get("dependency-groups", {}).get("test", [])
    session.install("pytest>=9.0", "hypothesis>=6.90", *test, "-c", str(CONSTRAINTS))
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    folder = ROOT / "packages" / distribution / "tests"
    session.run("pytest", "-q", *config, report(f"isolation-{distribution}"), *options, str(folder))


@nox.session
def docs(session: nox.Session) -> None:
    """Links, commands and examples of the documentation; every hook; upstream's public names."""
    session.install(*editable(), "--group", "test", "--group", "nox")
    run_all(
        session,
        ["python", "tools/check_docs.py"],
        ["python", "tools/public_names.py", "check"],
    )


@nox.session(python=TORCH_PYTHON)
def integration(session: nox.Session) -> None:
    """End-to-end tests with real services: -- local torch ... selects."""
    options = [argument for argument in session.posargs if argument not in SERVICES]
    services = [name for name in session.posargs if name in SERVICES] or SERVICES
    if any(not option.startswith("-") for option in options):
        session.error(f"unknown service in {options}; there are {', '.join(SERVICES)}")
    if TORCH_SERVICES.intersection(services):
        install_torch(session)
    files = [f"integration/requirements-{name}.txt" for name in services]
    found = [file for file in files if file != TORCH and (ROOT / file).exists()]
    requirements = [part for file in found for part in ("-r", file)]
    session.install(*editable(), *BUILD, "--group", "test", *requirements)
    paths = [f"integration/{name}" for name in services]
    session.run("pytest", report("--".join(["integration", *services])), *options, *paths)


@nox.session(python=TORCH_PYTHON)
@nox.parametrize("client", [nox.param(name, id=name) for name in CLIENTS])
def clients(session: nox.Session, client: str) -> None:
    """Programs from PyPI that import torchx, on this torchx: -- nemo_run ax ... selects."""
    options = select(session, client, CLIENTS)
    if client in TORCH_CLIENTS:
        install_torch(session)
    # One resolution, so that the client's requirements and ours are satisfied together.
    ours = editable(*closure("torchx", "torchx-sched-k8s", *CLIENT_EXTRAS.get(client, ())))
    folder = f"integration/clients/{client}"
    session.install(*ours, *BUILD, "pytest>=9.0", "-r", f"{folder}/requirements.txt")
    session.run("pytest", report(f"clients-{client}"), *options, folder)


@nox.session(requires=["wheels"])
def bench(session: nox.Session) -> None:
    """The benchmarks, beside the released TorchX; writes docs/benchmarks.md."""
    session.install("uv")
    session.run("python", "tools/bench/run.py", *session.posargs)
