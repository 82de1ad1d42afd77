"""The checks of this repository: ``nox -l`` lists them, ``nox -s NAME`` runs one.

Each session makes its own environment below ``.nox``. Arguments after ``--`` select distributions,
services or clients by name; all other arguments are passed to the session's main program.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).resolve().parent
REPORTS = ROOT / ".nox" / "reports"
WHEELS = ROOT / ".nox" / "dist"
CONSTRAINTS = WHEELS / "constraints.txt"
RELEASE = ROOT / ".nox" / "index"
README = ROOT / "README.md"

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
EDGE_PYTHONS = (PYTHONS[0], PYTHONS[-1])
# The argument that selects the tests of groups and sweeps on all services. `.ci/run` does not use
# it, because it runs these tests with the other tests of their services.
MANY = "many"
# The session `authors` runs integration/authors, in an environment without the checkout.
SERVICES = sorted({path.parent.name for path in ROOT.glob("integration/*/test_*.py")} - {"authors"})
CLIENTS = sorted(path.parent.name for path in ROOT.glob("integration/clients/*/requirements.txt"))

# The tests use PyTorch for CPUs on this Python only. Only pip finds its wheel, not uv.
TORCH_PYTHON = "3.11"
TORCH = "integration/requirements-pytorch.txt"
TORCH_SERVICES = {"slurm", "pytorch"}
TORCH_CLIENTS = {"ax", "frameworks", "parity", "torchft"}
# The distribution that the session `upgrade` upgrades.
BACK_END = "torchx-sched-local"
# Distributions that a client needs beside the facade and Kubernetes.
CLIENT_EXTRAS = {
    "frameworks": ["torchx-resilience"],
    "parity": ["torchx-notebook", "torchx-sched-aws", "torchx-testing", "torchx-tracker-mlflow"],
}
# Some integration tests build distributions and install them.
BUILD = ("pip", "hatchling>=1.27")

# What pyproject.toml and conftest.py need for tests in environments without the group `test`.
PYTEST = ("pytest>=9.0", "pytest-timeout>=2.3", "hypothesis>=6.90")

# The tests of the packages in parallel, as in hatch.toml. pytest-xdist repeats a test that ends its
# worker, until the workers are used up.
PARALLEL = ("-n", "4", "--dist", "loadfile", "--max-worker-restart", "2")

# The folder of the built documentation, which mkdocs.yml sets.
SITE = ".nox/site"

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests", "isolation", "docs"]

# pyenv's command python3.10 fails unless that version is activated, so add pyenv's interpreters to
# PATH.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
os.environ["PATH"] = os.pathsep.join(
    [os.environ.get("PATH", os.defpath)]
    + [str(path) for version in PYTHONS for path in PYENV.glob(f"versions/{version}.*/bin")]
)
# With the caller's PYTHONPATH, tests could import modules that are not installed. Without bytecode
# files, each of thousands of Python processes would compile its modules again.
for variable in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(variable, None)


def name_of(requirement: str) -> str:
    """Return the distribution that a requirement such as ``torchx-specs~=1.0`` names."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def closure(*names: str) -> list[str]:
    """Return distributions, and all distributions of this repository on which they depend."""
    found = list(names)
    for name in found:
        for requirement in PROJECTS[name]["project"]["dependencies"]:
            sibling = name_of(requirement)
            if sibling in PROJECTS and sibling not in found:
                found.append(sibling)
    return found


def optional_modules(distribution: str) -> list[str]:
    """Return the modules that a distribution imports without declaring them, or with an extra."""
    project = PROJECTS[distribution]
    rules = project.get("tool", {}).get("deptry", {}).get("per_rule_ignores", {})
    extras = project["project"].get("optional-dependencies", {})
    required = {re.split(r"[^\w-]", text)[0] for texts in extras.values() for text in texts}
    return sorted({name for names in rules.values() for name in names} | required)


def editable(*names: str) -> list[str]:
    """Return the arguments of an editable installation of ``names``, or of all distributions."""
    return [part for name in names or PROJECTS for part in ("-e", f"packages/{name}")]


def install_torch(session: nox.Session) -> None:
    """Install PyTorch for CPUs, with pip."""
    session.install("pip")
    session.run_install("python", "-m", "pip", "install", "-q", "-r", TORCH)


def install_for_services(session: nox.Session, services: list[str]) -> None:
    """Install all distributions, and what the tests of services require beside PyTorch."""
    files = [f"integration/requirements-{name}.txt" for name in services]
    existing = [file for file in files if file != TORCH and (ROOT / file).exists()]
    requirements = [part for file in existing for part in ("-r", file)]
    session.install(*editable(), *BUILD, "--group", "test", *requirements)


def run_all(session: nox.Session, *commands: list[str], **options: Any) -> None:
    """Run every command, then fail if one of them failed."""
    failed = []
    for command in commands:
        try:
            # Even on success, deptry prints three lines for each distribution.
            session.run(*command, silent=command[0] == "deptry", **options)
        except CommandFailed:
            failed.append(" ".join(command[:2]))
    if failed:
        session.error("; ".join(failed))


def select(session: nox.Session, this: str, known: list[str]) -> list[str]:
    """Skip the session if the arguments select others; return the arguments that are not names.

    Args:
        session: The session.
        this: The name that selects the session.
        known: All names that select sessions.
    """
    names = [argument for argument in session.posargs if argument in known]
    if names and this not in names:
        session.skip("not selected")
    return [argument for argument in session.posargs if argument not in known]


def run_pytest(
    session: nox.Session, name: str, *arguments: str, command: str = "pytest", **options: Any
) -> None:
    """Run pytest; write reports for tools/summary.py and tools/flakes.py.

    In `.ci/run`, these programs decide whether failed tests fail the run. Any other failure of
    pytest fails the session.
    """
    reports = [f"--junit-xml={REPORTS / name}.xml", f"--failures={REPORTS / name}.failures.json"]
    codes = [0, 1] if "IN_GATE" in os.environ else [0]
    session.run(command, *reports, *arguments, success_codes=codes, **options)


@nox.session
def lint(session: nox.Session) -> None:
    """Run ruff, import-linter and deptry; check project files, clocks in tests, and fragments."""
    session.install(*editable(), "--group", "lint")
    folders = [f"packages/{name}" for name in PROJECTS]
    run_all(
        session,
        ["ruff", "check", *session.posargs],
        ["ruff", "format", "--check"],
        ["lint-imports", "--no-logo"],
        ["python", "tools/check_projects.py"],
        ["python", "tools/check_clocks.py"],
        ["python", "tools/check_circles.py"],
        ["python", "tools/aws_resources.py", "check"],
        ["python", "tools/aws_limits.py", "check"],
        ["towncrier", "build", "--draft", "--version", "next"],
        *(["deptry", f"{path}/src", "--config", f"{path}/pyproject.toml"] for path in folders),
    )


@nox.session
def types(session: nox.Session) -> None:
    """Run mypy --strict on the distributions and the tools, and stubtest on the facade's stubs."""
    session.install(*editable(), "--group", "dev")
    sources = [f"packages/{name}/src/{name.replace('-', '_')}" for name in PROJECTS]
    # With each src/ folder on the path, mypy checks a module under the name that imports use.
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
    """Run the tests of every package, on each supported Python."""
    session.install(*editable(), "--group", "test")
    arguments = ["-q", *PARALLEL, *session.posargs]
    run_pytest(session, f"tests-{session.python}", *arguments)


@nox.session(python=False)
def next_python(session: nox.Session) -> None:
    """Run the tests of every package on the newest Python of Debian sid, as root."""
    arguments = ["-q", *PARALLEL, *session.posargs]
    run_pytest(session, "tests-next", *arguments, command="integration/next_python.sh")


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the wheel of each distribution, in .nox/dist."""
    session.install("hatchling")
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir(parents=True)
    for folder in MEMBERS:
        session.chdir(folder)
        session.run("hatchling", "build", "-t", "wheel", "-d", str(WHEELS), silent=True)
    # With these constraints, pip takes our distributions from the wheels, never from an index.
    lines = [f"{path.name.partition('-')[0]} @ {path.as_uri()}\n" for path in WHEELS.glob("*.whl")]
    CONSTRAINTS.write_text("".join(lines), "utf-8")


@nox.session
def release(session: nox.Session) -> None:
    """Build wheels and source distributions twice, compare them, and write an index: .nox/index."""
    session.install("hatchling>=1.27", "twine>=6.1")
    shutil.rmtree(RELEASE, ignore_errors=True)
    session.run("python", "tools/release.py", str(RELEASE))
    files = sorted(str(path) for path in (RELEASE / "files").iterdir())
    session.run("twine", "check", "--strict", *files, silent=True)


@nox.session(requires=["release"])
@nox.parametrize("python", [nox.param(version, id=version) for version in EDGE_PYTHONS])
def release_check(session: nox.Session) -> None:
    """Install each distribution and extra from the release's index; check licences and the SBOM.

    Also add distributions to a project of uv, and install the checkout with the README's command.
    """
    session.install("uv", "cyclonedx-bom>=7", "pip-licenses>=5")
    names = [name for name in session.posargs if name in PROJECTS] or list(PROJECTS)
    # uv takes our distributions only from the release's index, and all others from PyPI.
    index = ["--index", (RELEASE / "simple").as_uri()]
    index += [part for name in PROJECTS for part in ("--refresh-package", name)]
    folder = Path(session.create_tmp())

    def environment(*requirements: str) -> str:
        python = str(folder / requirements[0] / "bin" / "python")
        options = ["-q", "--clear", "-p", str(session.python)]
        session.run("uv", "venv", *options, str(folder / requirements[0]), silent=True)
        install = ["uv", "pip", "install", "-q", "-p", python, *index, *requirements]
        session.run(*install, silent=True)
        return python

    session.chdir(folder)
    for name in names:
        python = environment(name)
        module, optional = name.replace("-", "_"), optional_modules(name)
        command = ["-I", str(ROOT / "tools" / "import_all.py"), module, *optional]
        session.run(python, *command, external=True)
    for extra, requirements in PROJECTS["torchx"]["project"]["optional-dependencies"].items():
        python = environment(f"torchx[{extra}]")
        freeze = ["uv", "pip", "freeze", "-p", python]
        lines = str(session.run(*freeze, silent=True)).splitlines()
        found = {line.partition("==")[0] for line in lines if line.startswith("torchx")}
        added = [name_of(requirement) for requirement in requirements]
        if found != set(closure("torchx", *added)):
            session.error(f"torchx[{extra}] installs {sorted(found)}")
    sbom = RELEASE / f"sbom-{session.python}.cdx.json"
    bom = ["cyclonedx-py", "environment", "--output-reproducible", "-o", str(sbom)]
    python = environment(*PROJECTS)
    session.run(*bom, python)
    listing = ["--from=mixed", "--format=csv", f"--output-file={sbom.with_suffix('.licences.csv')}"]
    session.run("pip-licenses", f"--python={python}", *listing, "--fail-on=UNKNOWN", silent=True)
    # Outside of the checkout, so that uv does not see the checkout's pyproject.toml.
    with tempfile.TemporaryDirectory() as project, session.chdir(project):
        python_of_project = ["-q", "-p", str(session.python)]
        session.run("uv", "init", "--bare", *python_of_project)
        session.run("uv", "add", *index, *python_of_project, "torchx", "torchx-sched-sge")
        session.run("uv", "run", *python_of_project, "torchx", "plugins", silent=True)
    [line] = re.findall(r"^pip install (-c constraints.txt .+)$", README.read_text("utf-8"), re.M)
    fresh = ["uv", "venv", "-q", "--clear", "--seed", "-p", str(session.python), "checkout"]
    session.run(*fresh, silent=True)
    with session.chdir(ROOT):
        pip = [str(folder / "checkout" / "bin" / "pip"), "install", "-q", *line.split()]
        session.run(*pip, external=True, env={"PWD": str(ROOT)})


@nox.session(reuse_venv=False, requires=["wheels"])
@nox.parametrize("distribution", [nox.param(name, id=name) for name in PROJECTS])
def isolation(session: nox.Session, distribution: str) -> None:
    """Install each distribution with only its dependencies; import its modules, run its tests."""
    options = select(session, distribution, list(PROJECTS))
    module = distribution.replace("-", "_")
    [wheel] = WHEELS.glob(f"{module}-*.whl")
    session.install(str(wheel), "-c", str(CONSTRAINTS))
    project = PROJECTS[distribution]
    optional = optional_modules(distribution)
    # Leave the checkout, so that `import` finds the installed wheel.
    session.chdir(session.create_tmp())
    session.run("python", "-I", str(ROOT / "tools" / "import_all.py"), module, *optional)
    test = project.get("dependency-groups", {}).get("test", [])
    session.install(*PYTEST, *test, "-c", str(CONSTRAINTS))
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    folder = ROOT / "packages" / distribution / "tests"
    run_pytest(session, f"isolation-{distribution}", "-q", *config, *options, str(folder))


@nox.session(reuse_venv=False, requires=["wheels"])
def upgrade(session: nox.Session) -> None:
    """Install a newer version of one distribution on the present ones, and run its tests.

    The distribution is ``torchx-sched-local``, or the one that the arguments name.
    """
    [name] = [argument for argument in session.posargs if argument in PROJECTS] or [BACK_END]
    old = PROJECTS[name]["project"]["version"]
    major, minor = old.split(".")[:2]
    new = f"{major}.{int(minor) + 1}.0"
    module, folder = name.replace("-", "_"), Path(session.create_tmp()) / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "packages" / name, folder)
    project = folder / "pyproject.toml"
    text = project.read_text("utf-8")
    project.write_text(text.replace(f'\nversion = "{old}"\n', f'\nversion = "{new}"\n'), "utf-8")
    session.install("uv", "hatchling")
    session.install("torchx", name, "-c", str(CONSTRAINTS))
    session.chdir(folder)
    session.run("hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"), silent=True)
    [wheel] = (folder / "dist").glob("*.whl")
    others = [
        line for line in CONSTRAINTS.read_text("utf-8").splitlines() if name_of(line) != module
    ]
    (folder / "others.txt").write_text("\n".join(others), "utf-8")
    test = PROJECTS[name].get("dependency-groups", {}).get("test", [])
    tools = [*PYTEST, *test]
    session.install(str(wheel), *tools, "-c", str(folder / "others.txt"))
    session.run("uv", "pip", "check")
    frozen = str(session.run("uv", "pip", "freeze", silent=True))
    for installed in (f"{module}-{new}", f"torchx_specs-{old}"):
        if installed not in frozen:
            session.error(f"{installed} is not installed")
    config = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    run_pytest(session, "upgrade", "-q", *config, str(ROOT / "packages" / name / "tests"))


@nox.session(requires=["wheels"])
@nox.parametrize("python", [nox.param(version, id=version) for version in EDGE_PYTHONS])
def imports(session: nox.Session) -> None:
    """Install each distribution with only its dependencies, and import all of its modules."""
    session.install("uv")
    # Leave the checkout, so that `import` finds the installed wheels.
    session.chdir(session.create_tmp())
    install = ["uv", "pip", "install", "-q", "-c", str(CONSTRAINTS), "-p", "site"]
    for name in PROJECTS:
        session.run("uv", "venv", "-q", "--clear", "-p", str(session.python), "site", silent=True)
        session.run(*install, name, silent=True)
        script = ["-I", str(ROOT / "tools" / "import_all.py"), name.replace("-", "_")]
        session.run("site/bin/python", *script, *optional_modules(name), external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Check the documentation's links, commands and examples; open its site in a browser.

    Also check the hooks, the public names, and the messages on the troubleshooting page. With
    ``-- --no-browser``, don't open the site.
    """
    session.install(*editable(), "--group", "test", "--group", "nox", "--group", "docs")
    commands = [
        ["python", "tools/check_docs.py"],
        ["python", "tools/public_names.py", "check"],
        ["python", "docs/site/check_messages.py"],
        ["mkdocs", "build"],
    ]
    if "--no-browser" in session.posargs:
        session.log("the site is not opened in a browser")
    elif shutil.which("chromium") or os.environ.get("CI"):
        commands.append(["python", "docs/site/browser_check.py", SITE, f"{SITE}-pictures"])
    else:
        session.warn(
            "the site is not opened in a browser: `integration/install.sh docs` installs one"
        )
    run_all(session, *commands)


@nox.session(python=TORCH_PYTHON)
def integration(session: nox.Session) -> None:
    """Run end-to-end tests with real services: ``-- local pytorch`` selects two."""
    options = [argument for argument in session.posargs if argument not in (MANY, *SERVICES)]
    services = [name for name in session.posargs if name in SERVICES]
    if any(not option.startswith("-") for option in options):
        known = ", ".join((MANY, *SERVICES))
        session.error(f"unknown service in {options}; there are {known} (a test: -kNAME)")
    if not services and MANY not in session.posargs:
        services = SERVICES
    paths = [f"integration/{name}" for name in services]
    names = ["integration", *services]
    if MANY in session.posargs:
        names.append(MANY)
        found = {*ROOT.glob("integration/*/test_*groups.py")}
        found |= {*ROOT.glob("integration/*/test_*sweep*.py")}
        paths += sorted(str(path.relative_to(ROOT)) for path in found)
        services = sorted({*services, *(path.parent.name for path in found)})
    if TORCH_SERVICES.intersection(services):
        install_torch(session)
    install_for_services(session, services)
    # Write the reports of the conformance suites, which a page of the documentation lists.
    conformance = f"--torchx-report={REPORTS / 'conformance'}"
    run_pytest(session, "--".join(names), conformance, *options, *paths)


@nox.session(python=TORCH_PYTHON)
def gate(session: nox.Session) -> None:
    """Run the integration tests of the gate: a few of each service, and ``-- local`` all of local.

    Also check that tests have the same names and order in each run.
    """
    whole = [name for name in session.posargs if name in (*SERVICES, "doubles")]
    if TORCH_SERVICES.intersection(whole):
        install_torch(session)
    install_for_services(session, SERVICES)
    # Without PyTorch, the tests of this folder cannot be collected.
    folders = [f"integration/{name}" for name in SERVICES if name != "pytorch" or name in whole]
    session.run("python", "tools/collection.py", "packages", "tools/tests", *folders)
    arguments = [
        "-n6",  # Mostly, they wait; those of one service run in one worker.
        "--max-worker-restart=2",
        f"--gate={','.join(whole)}",
        f"--torchx-report={REPORTS / 'conformance'}",
    ]
    options = [argument for argument in session.posargs if argument not in whole]
    run_pytest(session, "gate", *arguments, *options, *folders)


@nox.session(requires=["wheels"])
@nox.parametrize("python", [nox.param(version, id=version) for version in EDGE_PYTHONS])
def authors(session: nox.Session) -> None:
    """Test new plugins and examples/acme-torchx, in fresh environments with our wheels."""
    session.install("uv", *PYTEST)
    environment = {"TORCHX_CONSTRAINTS": str(CONSTRAINTS)}
    arguments = [*session.posargs, "integration/authors"]
    run_pytest(session, f"authors-{session.python}", *arguments, env=environment)


@nox.session(python=TORCH_PYTHON)
@nox.parametrize("client", [nox.param(name, id=name) for name in CLIENTS])
def clients(session: nox.Session, client: str) -> None:
    """Test programs from PyPI that import torchx, with ours: ``-- nemo_run ax`` selects two."""
    options = select(session, client, CLIENTS)
    if client in TORCH_CLIENTS:
        install_torch(session)
    # Install everything in one command, so that pip satisfies the client's requirements and ours.
    kubernetes = ("torchx-sched-k8s", "torchx-k8s-supervisor", "torchx-sched-mcad")
    ours = editable(*closure("torchx", *kubernetes, *CLIENT_EXTRAS.get(client, ())))
    folder = f"integration/clients/{client}"
    session.install(*ours, *BUILD, *PYTEST, "-r", f"{folder}/requirements.txt")
    run_pytest(session, f"clients-{client}", *options, folder)


@nox.session
def deep(session: nox.Session) -> None:
    """Run everything that the gate leaves out: ``-- slurm clients`` runs two parts.

    A part that has passed on the same files is not repeated, so a stopped run can be continued.
    """
    session.install("--group", "nox")
    session.run("python", "tools/deep.py", *session.posargs)


@nox.session(requires=["wheels"])
def bench(session: nox.Session) -> None:
    """Run the benchmarks of this TorchX and of the released one; write docs/benchmarks.md."""
    session.install("uv")
    session.run("python", "tools/bench/run.py", *session.posargs)
