"""A job of two roles: one coordinator distributes work to several workers.

Run it from the top of the repository with ``python3 tools/bootstrap.py demo``, or, where ``torchx``
is installed, with::

    torchx run -s local_cwd examples/demo.py:demo --workers 3

This file contains the component (:func:`demo`) and the program of its replicas. The job sums
Leibniz' series for pi in pieces, which the coordinator gives to free workers.
"""

from __future__ import annotations

import sys

import torchx_specs as specs


def demo(workers: int = 3, pieces: int = 12, terms: int = 200_000) -> specs.AppDef:
    """Compute pi with one coordinator and several workers.

    Args:
        workers: Number of worker replicas.
        pieces: Number of pieces of the work.
        terms: Number of terms of the series in each piece.
    """
    # The scheduler replaces the macro by the app id, which makes the address unique.
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
    """Return the path of this run's Unix socket, which only its owner may connect to."""
    import os
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"torchx-{os.getuid()}-{app}.sock")


def _print_line(text: str) -> None:
    """Print a line in one write, so that lines of several threads do not mix."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def coordinate(app: str, workers: int, pieces: int, terms: int) -> None:
    """Give pieces to free workers, add up their results and print the sum."""
    import os
    import queue
    import socket
    import threading

    pending: queue.SimpleQueue[int] = queue.SimpleQueue()
    for piece in range(pieces):
        pending.put(piece)
    results: list[float] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rw", encoding="ascii") as stream:
            name = stream.readline().strip()
            while True:
                try:
                    piece = pending.get_nowait()
                except queue.Empty:
                    return
                stream.write(f"{piece * terms} {terms}\n")
                stream.flush()
                results.append(float(stream.readline()))
                _print_line(f"piece {piece + 1} of {pieces} done by worker {name}")

    path = _address(app)
    with socket.socket(socket.AF_UNIX) as server:
        os.umask(0o177)
        server.bind(path)
        try:
            server.listen(workers)
            _print_line(f"waiting for {workers} workers")
            threads = [
                threading.Thread(target=serve, args=(server.accept()[0],)) for _ in range(workers)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            os.unlink(path)
    if len(results) != pieces:
        sys.exit(f"only {len(results)} of {pieces} pieces were done")
    _print_line(f"pi is about {4 * sum(results):.6f}")


def work(app: str, replica: str) -> None:
    """Request pieces until none is left."""
    import socket
    import time

    with socket.socket(socket.AF_UNIX) as connection:
        deadline = time.monotonic() + 30
        while True:
            try:
                connection.connect(_address(app))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                # The coordinator may not have started yet.
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
    _print_line(f"worker {replica} did {done} pieces")


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
