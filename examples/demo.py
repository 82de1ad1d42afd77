"""A job of two roles: one coordinator hands out work, several workers do it.

Run it from the top of the repository with ``python3 tools/bootstrap.py demo``, or, in an
environment that has ``torchx``::

    torchx run -s local_cwd examples/demo.py:demo --workers 3

The same file is the component (:func:`demo`) and the program that its replicas run. Together they
sum Leibniz' series for pi, in pieces that the coordinator gives to whichever worker is free.
"""

from __future__ import annotations

import sys

import torchx_specs as specs


def demo(workers: int = 3, pieces: int = 12, terms: int = 200_000) -> specs.AppDef:
    """Computes pi with one coordinator and several workers.

    Args:
        workers: number of worker replicas
        pieces: into how many pieces the work is cut
        terms: terms of the series in each piece
    """
    # The app's id makes the address of this run its own; the scheduler fills it in.
    address = ["--app", specs.macros.app_id]
    share = ["--workers", str(workers), "--pieces", str(pieces), "--terms", str(terms)]
    small = specs.Resource(cpu=1, gpu=0, memMB=256)
    return specs.AppDef(
        name="demo",
        roles=[
            specs.Role(
                name="coordinator",
                image="",
                entrypoint=sys.executable,
                args=[__file__, "coordinate", *address, *share],
                resource=small,
            ),
            specs.Role(
                name="worker",
                image="",
                entrypoint=sys.executable,
                args=[__file__, "work", *address, "--replica", specs.macros.replica_id],
                num_replicas=workers,
                resource=small,
            ),
        ],
    )


def _address(app: str) -> str:
    """The Unix socket of this run; its owner alone may connect."""
    import os
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"torchx-{os.getuid()}-{app}.sock")


def _say(text: str) -> None:
    """Prints a line at once and in one piece, whatever other threads print."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def coordinate(app: str, workers: int, pieces: int, terms: int) -> None:
    """Hands each piece to the next free worker, adds up the answers, prints the sum."""
    import os
    import queue
    import socket
    import threading

    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for piece in range(pieces):
        todo.put(piece)
    answers: list[float] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rw", encoding="ascii") as stream:
            name = stream.readline().strip()
            while True:
                try:
                    piece = todo.get_nowait()
                except queue.Empty:
                    return
                stream.write(f"{piece * terms} {terms}\n")
                stream.flush()
                answers.append(float(stream.readline()))
                _say(f"piece {piece + 1} of {pieces} done by worker {name}")

    path = _address(app)
    with socket.socket(socket.AF_UNIX) as server:
        os.umask(0o177)
        server.bind(path)
        try:
            server.listen(workers)
            _say(f"waiting for {workers} workers")
            threads = [
                threading.Thread(target=serve, args=(server.accept()[0],)) for _ in range(workers)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            os.unlink(path)
    if len(answers) != pieces:
        sys.exit(f"only {len(answers)} of {pieces} pieces were done")
    _say(f"pi is about {4 * sum(answers):.6f}")


def work(app: str, replica: str) -> None:
    """Asks for pieces until there are none left."""
    import socket
    import time

    with socket.socket(socket.AF_UNIX) as connection:
        deadline = time.monotonic() + 30
        while True:
            try:
                connection.connect(_address(app))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                # The coordinator starts at the same time as we do.
                if time.monotonic() > deadline:
                    sys.exit("no coordinator within 30 s")
                time.sleep(0.02)
        done = 0
        with connection.makefile("rw", encoding="ascii") as stream:
            stream.write(f"{replica}\n")
            stream.flush()
            for line in stream:
                first, terms = map(int, line.split())
                part = sum((-1) ** n / (2 * n + 1) for n in range(first, first + terms))
                stream.write(f"{part!r}\n")
                stream.flush()
                done += 1
    _say(f"worker {replica} did {done} pieces")


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["coordinate", "work"])
    parser.add_argument("--app", required=True)
    parser.add_argument("--replica", default="0")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pieces", type=int, default=12)
    parser.add_argument("--terms", type=int, default=200_000)
    arguments = parser.parse_args()
    if arguments.part == "coordinate":
        coordinate(arguments.app, arguments.workers, arguments.pieces, arguments.terms)
    else:
        work(arguments.app, arguments.replica)


if __name__ == "__main__":
    main()
