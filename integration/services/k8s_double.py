"""Start and stop a double of Kubernetes; see integration/k8s/k8s_double.

    integration/services/k8s_double.py start FOLDER [--http]
    export KUBECONFIG=FOLDER/kubeconfig
    integration/services/k8s_double.py stop FOLDER

The double listens on a free port of 127.0.0.1, and runs the commands of pods as processes in
FOLDER. It needs the packages of integration/requirements-k8s.txt. ``stop`` ends the process whose
id is in FOLDER/control.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from service_process import ServiceError as ServiceError
from service_process import spawn

TIMEOUT_SECONDS = 30.0
SOURCE = Path(__file__).resolve().parent.parent / "k8s"


def start(folder: Path, *options: str) -> dict[str, str]:
    """Start a double, and wait until it is ready.

    Args:
        folder: A new or empty folder.
        options: Further arguments of ``python -m k8s_double``.

    Returns:
        The environment variables with which clients find the double.

    Raises:
        ServiceError: The double does not start.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    control = folder / "control.json"
    control.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "k8s_double", str(folder), *options]
    process = spawn(command, folder / "double.log", "k8s", {**os.environ, "PYTHONPATH": path})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not control.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServiceError((folder / "double.log").read_text(errors="replace")[-1500:])
        time.sleep(0.05)
    return {"KUBECONFIG": str(folder / "kubeconfig")}


def stop(folder: Path) -> None:
    """End the double in a folder. A double that does not run is not an error."""
    control = folder / "control.json"
    try:
        os.kill(int(json.loads(control.read_text())["pid"]), signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        return
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while control.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Start or stop a double of Kubernetes on this machine."
    )
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--http", action="store_true", help="serve HTTP instead of HTTPS")
    arguments = parser.parse_args()
    if arguments.do == "stop":
        stop(arguments.folder)
        return 0
    try:
        found = start(arguments.folder, *(["--http"] if arguments.http else []))
    except ServiceError as e:
        print(f"k8s double: {e}", file=sys.stderr)
        return 1
    print("\n".join(f"export {name}={value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
