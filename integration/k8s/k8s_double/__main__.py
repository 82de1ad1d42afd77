"""Run a double in this process until it is ended: ``python -m k8s_double FOLDER``."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from k8s_double import identity
from k8s_double.cluster import Cluster
from k8s_double.control import Control, serve


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="k8s_double",
        description="A double of Kubernetes; FOLDER/kubeconfig is how clients find it.",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--http", action="store_true", help="without TLS")
    parser.add_argument("--image", action="append", help="an image the node has; may be repeated")
    parser.add_argument(
        "--namespace", action="append", help="an additional namespace; may be repeated"
    )
    parser.add_argument("--parent", type=int, help="end when this process has ended")
    arguments = parser.parse_args()
    # each pod has a thread, so hundreds of pods need small stacks
    threading.stack_size(512 * 1024)
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tls = None if arguments.http else identity.server_context(folder)
    cluster = Cluster(folder, tls, {}, images=arguments.image, namespaces=arguments.namespace)
    threading.excepthook = lambda found: cluster.problem(
        "".join(traceback.format_exception(found.exc_type, found.exc_value, found.exc_traceback))
    )
    control = Control(cluster, folder, tls=not arguments.http)
    cluster.front.up()
    control.kubeconfig()
    secret = secrets.token_hex(16)
    found = {"port": serve(control, secret), "secret": secret, "pid": os.getpid()}
    new = folder / "control.json.new"
    new.touch(0o600)
    new.write_text(json.dumps(found))
    new.replace(folder / "control.json")
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # do not set `control.ended` here: the interrupted main thread may hold the event's lock
        signal.signal(number, lambda number, _: signals.append(number))
    print(f"export KUBECONFIG={folder / 'kubeconfig'}", flush=True)
    while not signals and not control.ended.wait(0.1):
        if arguments.parent and not _alive(arguments.parent):
            break
    cluster.close()
    (folder / "control.json").unlink(missing_ok=True)
    time.sleep(0.05)
    return 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
