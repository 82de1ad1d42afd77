"""Real clients of ``torchx``, with ours in the place of theirs.

``python tools/clients.py [CLIENT ...]``. A client is a folder of ``integration/clients``. For each:

1. an environment of its own is made in ``.nox/clients``, or found up to date: our distributions,
   editable, which are what the client's own requirement of ``torchx`` finds, and all that its
   ``requirements.txt`` asks for;
2. its tests run there.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import distributions
import environments
import verification
from distributions import ROOT

CLIENTS = ROOT / "integration" / "clients"
ENVIRONMENTS = ROOT / ".nox" / "clients"
# The distributions that clients expect beyond the facade's own requirements.
BESIDE = ("torchx-sched-k8s",)


def names() -> list[str]:
    """The clients there are."""
    return sorted(path.parent.name for path in CLIENTS.glob("*/requirements.txt"))


def ours() -> list[distributions.Distribution]:
    """What is installed editable: the facade, what it needs, and :data:`BESIDE`."""
    wanted = {"torchx", *distributions.BY_NAME["torchx"].ours, *BESIDE}
    return [member for member in distributions.members() if member.name in wanted and member.exists]


def fingerprint(name: str, python: str) -> str:
    """Changes whenever an installation would give something else."""
    digest = hashlib.sha256(f"{ROOT} {python}\n".encode())
    files = [member.folder / "pyproject.toml" for member in ours()]
    files += sorted((CLIENTS / name).glob("*.txt"))
    for file in (*files, Path(__file__)):
        digest.update(b"%s\0%s\0" % (bytes(file), file.read_bytes()))
    return digest.hexdigest()


def install(name: str, python: str) -> Path:
    """Makes the environment of a client, or finds it up to date; its folder.

    Args:
        name: One of :func:`names`.
        python: The interpreter that a new one is made from.

    Raises:
        environments.EnvironmentFailure: With one clear line.
    """
    environment = ENVIRONMENTS / name
    stamp = environment / "client.sha256"
    digest = fingerprint(name, python)
    if stamp.exists() and stamp.read_text("ascii") == digest:
        return environment
    if environments.version_of(environments.python_in(environment)) is None:
        environments.create(environment, python)
    log = environment / "client.log"
    log.unlink(missing_ok=True)
    members = ours()
    others = sorted({other for member in members for other in member.others})
    editable = [part for member in members for part in ("-e", str(member.folder))]
    requirements = str(CLIENTS / name / "requirements.txt")
    for arguments in (
        ["install", "hatchling>=1.27"],
        ["install", "--no-deps", "--no-build-isolation", *editable],
        # In one call, so that what ours and what the client's needs allow is found together.
        ["install", "pytest>=9.0", *others, "-r", requirements],
        ["check"],
    ):
        environments.pip(environment, arguments, log=log)
    stamp.write_text(digest, "ascii")
    return environment


def verify(name: str, python: str, reports: Path, options: Sequence[str]) -> str:
    """Makes the environment and runs the tests; pytest's last line.

    Raises:
        verification.Failed: A test failed.
        environments.EnvironmentFailure: Something can't be installed.
    """
    begun = time.monotonic()
    environment = install(name, python)
    made = time.monotonic() - begun
    command = [str(environment / "bin" / "pytest"), f"integration/clients/{name}", *options]
    # Two of these run at once, and would write to one cache.
    command += ["-p", "no:cacheprovider", f"--junit-xml={reports / f'clients-{name}.xml'}"]
    lines = verification.run(command, cwd=ROOT, environment=environment).strip().splitlines()
    last = lines[-1].strip("= ")
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    return "\n".join([f"environment in {made:.0f} s; {last}", *skipped])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(names()))
    parser.add_argument("--python", default=sys.executable, help="what environments are made from")
    parser.add_argument("--reports", type=Path, default=ENVIRONMENTS / "reports")
    parser.add_argument("-k", help="only tests that match, as for pytest")
    arguments = parser.parse_args(argv)
    chosen = arguments.clients or names()
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        parser.error(f"no client {', '.join(unknown)}; there are {', '.join(names())}")
    reports = arguments.reports.resolve()
    reports.mkdir(parents=True, exist_ok=True)
    options = ["-k", arguments.k] if arguments.k else []
    return verification.verify_all(
        "clients", chosen, lambda name: verify(name, arguments.python, reports, options)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
