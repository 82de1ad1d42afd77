"""Tests that each notifier gets one notification of a local job, and that no secret is shown."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

KEY = "key-hunter2-key"
PATH = "/hook/path-hunter2-path"
CONFIG = """
[log_sink:disk]
url = file://{folder}/copies

[notifier:team]
type = webhook
url = ${{secret:team-hook}}
key = ${{secret:team-key}}

[notifier:file]
type = command
command = {python} {folder}/work/notify.py {folder}/notified '{{name}}' '{{summary}}'
"""
NOTIFY = """
import json, os, sys
parent = open(f"/proc/{os.getppid()}/cmdline").read()
data = [sys.argv[2:], sys.stdin.read(), dict(os.environ), parent]
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(data) + "\\n")
"""
# The job prints its environment, and the command lines of all processes of this user.
JOB = "env; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo boom >&2; exit 3"


@pytest.fixture
def receiver() -> Iterator[Any]:
    """Yield an HTTP server that refuses two requests; its list ``received`` has all requests."""
    received: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, self.headers["X-TorchX-Signature-256"], body))
            self.send_response(200 if len(received) > 2 else 503)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.received = received
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def site(torchx: Any, environment: dict[str, str], receiver: Any, tmp_path: Path) -> Path:
    """Configure two notifiers, a log sink and secrets; return the folder of the test."""
    environment["TORCHX_SECRET_TEAM_HOOK"] = f"http://127.0.0.1:{receiver.server_port}{PATH}"
    environment["TORCHX_SECRET_TEAM_KEY"] = KEY
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1"
    environment["TORCHX_EVENTS"] = "console"
    (tmp_path / "work" / "notify.py").write_text(NOTIFY)
    (tmp_path / "work" / ".torchxconfig").write_text(
        CONFIG.format(python=sys.executable, folder=tmp_path)
    )
    return tmp_path


def check(receiver: Any, site: Path, handle: str, output: str) -> None:
    """Raise unless each notifier got one notification of a failed job, and no secret is shown."""
    assert len(receiver.received) == 3  # the server refused the first two attempts
    assert len(set(receiver.received)) == 1
    path, signature, body = receiver.received[0]
    assert path == PATH
    assert signature == "sha256=" + hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
    data = json.loads(body)
    assert (data["handle"], data["state"]) == (handle, "FAILED")
    assert data["first_failure"]["exit_code"] == 3
    (line,) = (site / "notified").read_text().splitlines()
    (name, summary), text, _, _ = json.loads(line)
    assert (name, summary) == (data["name"], data["summary"])
    assert summary.startswith("FAILED")
    assert f"handle: {handle}\n" in text
    files = [file for file in site.rglob("*") if file.is_file()]
    texts = {str(file): file.read_bytes() for file in files}
    texts["output"] = output.encode()
    for secret in (KEY, "path-hunter2-path"):
        assert [name for name, text in texts.items() if secret.encode() in text] == []


def test_run_notifies_and_shows_no_secret(torchx: Any, receiver: Any, site: Path) -> None:
    notify = ["--notify", "team", "--notify", "file"]
    ran = torchx("--log_level", "DEBUG", "run", *notify, "utils.sh", "--", "sh", "-c", JOB)
    assert ran.returncode == 1, ran.stderr
    assert "boom" in ran.stderr
    check(receiver, site, ran.stdout.strip(), ran.stdout + ran.stderr)
