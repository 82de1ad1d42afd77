"""Run a command in the development environment: ``python3 tools/bootstrap.py demo``.

This script needs Python 3.10 or newer and a package index. The first run installs hatch and uv in
``.nox/bootstrap``. Then hatch makes the environment ``.venv``, which hatch.toml describes, with
every distribution editable. Later runs install only what changed.
"""

import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOLS = os.path.join(ROOT, ".nox", "bootstrap")
ENVIRONMENT = os.path.join(ROOT, ".venv")
REQUIREMENTS = ["hatch>=1.16", "uv>=0.9"]
USAGE = """usage: python3 tools/bootstrap.py COMMAND [ARGUMENTS]

  demo               run a job with two roles on this machine
  test [PYTEST ...]  run the tests of every package
  shell              open a shell in the environment
  nox [NOX ...]      run the checks
  PROGRAM ...        run any other program of the environment
"""


def require_newer_python() -> None:
    """Run this script again with a newer Python from PATH, or exit with an error."""
    for minor in range(13, 9, -1):
        path = shutil.which(f"python3.{minor}")
        if path and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(path, [path, *sys.argv])  # noqa: S606 (replaces this process)
    sys.exit(f"bootstrap: needs Python 3.10 or newer on PATH; this is {sys.version.split()[0]}")


def install_tools() -> None:
    """Install hatch and uv, unless the same requirements were installed before."""
    marker = os.path.join(TOOLS, "requirements.txt")
    wanted = "\n".join([sys.version, *REQUIREMENTS])
    if os.path.exists(marker) and open(marker).read() == wanted:  # noqa: SIM115
        return
    print("bootstrap: installing hatch and uv in", TOOLS, flush=True)
    subprocess.check_call([sys.executable, "-m", "venv", "--clear", TOOLS])
    subprocess.check_call([os.path.join(TOOLS, "bin", "pip"), "install", "-q", *REQUIREMENTS])
    with open(marker, "w") as file:
        file.write(wanted)


def remove_stale_environment() -> None:
    """Remove ``.venv`` if a project file is newer: hatch does not notice a new entry point."""
    made = os.path.join(ENVIRONMENT, "pyvenv.cfg")
    packages = os.path.join(ROOT, "packages")
    files = [os.path.join(packages, name, "pyproject.toml") for name in os.listdir(packages)]
    changed = max(os.path.getmtime(file) for file in files if os.path.exists(file))
    if os.path.exists(made) and os.path.getmtime(made) < changed:
        shutil.rmtree(ENVIRONMENT)


def main(arguments: "list[str]") -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(USAGE)
    if sys.version_info < (3, 10):  # noqa: UP036 (an old Python may run this file)
        require_newer_python()
    try:
        install_tools()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"bootstrap: cannot install hatch: {error}")
    remove_stale_environment()
    os.chdir(ROOT)
    for variable in ("VIRTUAL_ENV", "UV_PYTHON"):  # With these, uv uses another environment.
        os.environ.pop(variable, None)
    # sys.executable may be in the environment that was just removed, so use the base interpreter.
    os.environ["HATCH_PYTHON"] = getattr(sys, "_base_executable", sys.executable)
    os.environ["HATCH_ENV_TYPE_VIRTUAL_UV_PATH"] = os.path.join(TOOLS, "bin", "uv")
    hatch = os.path.join(TOOLS, "bin", "hatch")
    command = ["shell"] if arguments == ["shell"] else ["run", "--", *arguments]
    os.execv(hatch, [hatch, *command])  # noqa: S606 (replaces this process)


if __name__ == "__main__":
    main(sys.argv[1:])
