"""From a fresh checkout to a running job: ``python3 tools/bootstrap.py demo``.

Makes ``.venv``, installs every distribution of the workspace editable, and then runs a demo, the
tests, a shell or nox in it. Needs a Python 3.10 or newer and a package index; neither root nor a
service. Once installed, nothing is installed again until a project file changes.
"""

# No `from __future__ import annotations` here: an old Python must get as far as saying that it is
# too old, in one line.

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time

OLDEST = (3, 10)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
USAGE = """usage: python3 tools/bootstrap.py COMMAND [ARGUMENTS]

  demo               run a two-role job on this machine, with streamed logs and final status
  test [PYTEST ...]  run the tests of every package (arguments go to pytest)
  shell              open a shell in the environment
  nox [NOX ...]      run nox, with everything the sessions need (arguments go to nox)
  install            make the environment only
"""


def newer_python() -> "str | None":
    """The first Python on PATH that is new enough, or None."""
    for minor in range(13, OLDEST[1] - 1, -1):
        path = shutil.which(f"python3.{minor}")
        if path and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return path
    return None


if sys.version_info < OLDEST:
    found = newer_python()
    if found is None:
        wanted, this = ("{}.{}".format(*version) for version in (OLDEST, sys.version_info))
        sys.exit(
            f"bootstrap: Python {wanted} or newer is needed, this is {this}; PATH has no other"
        )
    os.execv(found, [found, *sys.argv])  # noqa: S606 (no shell is wanted)

sys.path.insert(0, os.path.join(ROOT, "tools"))

from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import distributions  # noqa: E402
import environments  # noqa: E402

ENVIRONMENT = Path(ROOT, ".venv")
REQUIREMENTS = Path(ROOT, "tools", "requirements")

# What each level installs beyond the workspace; a later level includes the earlier ones.
LEVELS = {
    "run": [],
    "test": ["test.txt"],
    "dev": ["test.txt", "dev.txt"],
}
INCLUDED_IN = {"run": ("run", "test", "dev"), "test": ("test", "dev")}


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


def members(level: str) -> list[distributions.Distribution]:
    """The distributions of a level: `run` has what `torchx` needs, the others have all."""
    everything = distributions.members()
    if level != "run":
        return everything
    wanted = {"torchx", *distributions.BY_NAME["torchx"].ours}
    return [member for member in everything if member.name in wanted]


def fingerprint(level: str, more: Sequence[Path] = ()) -> list[str]:
    """Digests of what an installation at ``level`` depends on: its own, and one of each file."""
    digest = hashlib.sha256(f"{level} {ROOT}\n".encode())
    files = [member.folder / "pyproject.toml" for member in members(level)]
    files += [REQUIREMENTS / name for name in LEVELS[level]]
    for file in files:
        digest.update(b"%s\0%s\0" % (os.fsencode(file.name), file.read_bytes()))
    return [digest.hexdigest(), *(hashlib.sha256(file.read_bytes()).hexdigest() for file in more)]


def installed(level: str, environment: Path, more: Sequence[Path] = ()) -> bool:
    """Whether ``level``, or one that includes it, is there and up to date.

    An environment that was made with further files too will do: it is left as it is.
    """
    for name in INCLUDED_IN.get(level, (level,)):
        stamp = environment / f"workspace-{name}.sha256"
        if stamp.exists():
            own, *others = stamp.read_text("ascii").split() or [""]
            wanted, *files = fingerprint(name, more)
            if own == wanted and set(files) <= set(others):
                return True
    return False


def show_pip(line: str) -> None:
    """Passes on pip's lines that say what it is at."""
    words = line.split()
    if words[:1] in (["Collecting"], ["Downloading"]):
        print("  " + " ".join(words[:2]), flush=True)
    elif words[:1] == ["Installing"]:
        print("  " + " ".join(words), flush=True)
    else:
        why = environments.lost_connection(line)
        if why:
            print(f"  no package index ({why}), trying again", flush=True)


def step(environment: Path, number: int, title: str, arguments: list[str]) -> None:
    say(f"[{number}/3] {title}")
    begun = time.monotonic()
    environments.pip(environment, arguments, show=show_pip, log=environment / "bootstrap.log")
    print(f"  done in {time.monotonic() - begun:.0f} s", flush=True)


def install(
    level: str,
    environment: Path = ENVIRONMENT,
    python: str = sys.executable,
    more: Sequence[Path] = (),
) -> None:
    """Makes an environment with the workspace in it, or brings it up to date.

    Args:
        level: A key of :data:`LEVELS`.
        environment: Its folder.
        python: What a new environment is made from.
        more: Further files of requirements.

    Raises:
        environments.EnvironmentFailure: With one clear line.
    """
    works = environments.version_of(environments.python_in(environment)) is not None
    if works and installed(level, environment, more):
        return
    if works:
        say(f"[1/3] {environment} is there")
    else:
        say(f"[1/3] making {environment} with {python}")
        environments.create(environment, python)
    (environment / "bootstrap.log").unlink(missing_ok=True)
    wanted = members(level)
    others = sorted({other for member in wanted for other in member.others})
    files = [REQUIREMENTS / name for name in LEVELS[level]]
    files_of_requirements = [part for file in (*files, *more) for part in ("-r", str(file))]
    step(
        environment,
        2,
        "third-party packages",
        ["install", "hatchling>=1.27", *others, *files_of_requirements],
    )
    # One call and no build isolation: building eleven editable distributions takes three seconds
    # and not three seconds each.
    editable = [part for member in wanted for part in ("-e", str(member.folder))]
    step(
        environment,
        3,
        f"{len(wanted)} distributions of this repository, editable",
        ["install", "--no-deps", "--no-build-isolation", *editable],
    )
    environments.pip(environment, ["check"], log=environment / "bootstrap.log")
    stamp = "\n".join(fingerprint(level, more))
    (environment / f"workspace-{level}.sha256").write_text(stamp, "ascii")


def activated(environment: Path = ENVIRONMENT) -> dict[str, str]:
    """The variables of a process that runs inside ``environment``."""
    variables = dict(os.environ, VIRTUAL_ENV=str(environment))
    variables.pop("PYTHONHOME", None)
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return variables


IGNORABLE = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def take_signals() -> None:
    for number in IGNORABLE:
        signal.signal(number, signal.SIG_DFL)


def run(*command: str) -> int:
    """Runs ``command`` in the environment, from the top of the repository; its exit code.

    Tests signal what they start, and fail where every descendant inherits that a signal is ignored:
    SIGINT, because a shell put us in the background with ``&``, or SIGHUP, by nohup. There the
    command gets a session of its own, which no terminal's signals reach, and the usual handlers.
    """
    sys.stdout.flush()
    background = any(signal.getsignal(number) is signal.SIG_IGN for number in IGNORABLE)
    try:
        return subprocess.call(
            [str(ENVIRONMENT / "bin" / command[0]), *command[1:]],
            cwd=ROOT,
            env=activated(),
            start_new_session=background,
            preexec_fn=take_signals if background else None,
        )
    except KeyboardInterrupt:
        return 130


def demo(arguments: list[str]) -> int:
    install("run")
    command = ["torchx", "run", "-s", "local_cwd", "examples/demo.py:demo", *arguments]
    say("running: " + " ".join(command))
    return run(*command)


def test(arguments: list[str]) -> int:
    install("test")
    return run("python", "-m", "pytest", *arguments)


def shell(arguments: list[str]) -> int:
    install("run")
    program = os.environ.get("SHELL") or "/bin/sh"
    command = [program, *arguments]
    if os.path.basename(program) == "bash" and not arguments:
        # bash reads its own start-up file first, which may put another Python before ours.
        start = ENVIRONMENT / "bootstrap.bashrc"
        start.write_text(
            f'[ -f ~/.bashrc ] && . ~/.bashrc\n. "{ENVIRONMENT}/bin/activate"\n', "utf-8"
        )
        command += ["--rcfile", str(start)]
    say(f"{program} in {ENVIRONMENT}; `exit` leaves it")
    return subprocess.call(command, env=activated())


def nox(arguments: list[str]) -> int:
    install("dev")
    return run("nox", *arguments)


def only_install(arguments: list[str]) -> int:
    install(arguments[0] if arguments and arguments[0] in LEVELS else "dev")
    return 0


COMMANDS = {"demo": demo, "test": test, "shell": shell, "nox": nox, "install": only_install}


def main(argv: list[str]) -> int:
    if argv[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if not argv or argv[0] not in COMMANDS:
        if argv:
            print(f"bootstrap: there is no command '{argv[0]}'", file=sys.stderr)
        print(USAGE, end="", file=sys.stderr)
        return 2
    try:
        return COMMANDS[argv[0]](argv[1:])
    except environments.EnvironmentFailure as failure:
        print(f"bootstrap: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
