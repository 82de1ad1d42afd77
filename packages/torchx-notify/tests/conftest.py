"""Fixtures: a real HTTP receiver, and a home with no secrets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


class Receiver:
    """An HTTP server on this machine whose answers a test sets.

    Attributes:
        answers: The next answers: a status code, ``hang`` (no answer) or ``close`` (the connection
            is closed). If the list is empty, the server answers 200.
        received: Path, headers (names in lower case) and body of each request.
        location: The URL to which the answers 300 to 399 redirect.
        url: The URL of the server.
    """

    def __init__(self) -> None:
        self.answers: list[int | str] = []
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.location = ""
        self.release = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {key.lower(): value for key, value in self.headers.items()}
                receiver.received.append((self.path, headers, body))
                answer = receiver.answers.pop(0) if receiver.answers else 200
                if answer == "hang":
                    receiver.release.wait(60)
                if isinstance(answer, str):
                    self.close_connection = True
                    return
                self.send_response(answer)
                if 300 <= answer < 400:
                    self.send_header("Location", receiver.location)
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - the name of the library

            def log_message(self, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
