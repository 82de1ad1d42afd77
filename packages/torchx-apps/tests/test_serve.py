"""Tests of the program ``serve`` with a double of TorchServe, which downloads the archive."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import fsspec
import pytest

from patience import PATIENCE
from torchx_apps import serve
from torchx_apps.program import ProgramError

MODEL = bytes(range(256)) * 5000


class MockTorchServe(ThreadingHTTPServer):
    """A server that handles the request "register model" as TorchServe does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), MockTorchServeHandler)
        self.status = 200
        self.is_silent = False
        self.query: dict[str, list[str]] = {}
        self.archive = b""
        self.elsewhere: list[int] = []
        self.let_go = threading.Event()

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_address[1]}"


class MockTorchServeHandler(BaseHTTPRequestHandler):
    server: MockTorchServe

    def do_POST(self) -> None:
        if self.server.is_silent:
            self.server.let_go.wait(PATIENCE)
            return
        target = urlsplit(self.path)
        assert target.path == "/models"
        self.server.query = parse_qs(target.query, keep_blank_values=True)
        url = self.server.query["url"][0]
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - ours
            self.server.archive = answer.read()
        self.server.elsewhere = [status(other) for other in others(url)]
        body = b'{"status": "registered \xc3\xbc"}\n'
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def others(url: str) -> list[str]:
    """Return URLs on the same server that differ from the secret URL."""
    root = url[: url.index("/", len("http://"))]
    name = url.rpartition("/")[2]
    return [root, f"{root}/", f"{root}/{name}", f"{url}x", f"{url}/", url[:-1], f"{root}/../{name}"]


def status(url: str, method: str = "GET") -> int:
    target = urlsplit(url)
    connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=PATIENCE)
    try:
        connection.request(method, target.path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def torchserve() -> Iterator[MockTorchServe]:
    with MockTorchServe() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.let_go.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.mar"
    path.write_bytes(MODEL)
    return str(path)


def test_model_is_registered(
    torchserve: MockTorchServe, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    serve.main(
        f"--model_path={model} --management_api={torchserve.address} --port=0"
        " --model_name=my_net --initial_workers=2 --synchronous=true".split()
    )
    assert torchserve.archive == MODEL
    url = torchserve.query.pop("url")[0]
    assert torchserve.query == {
        "model_name": ["my_net"],
        "initial_workers": ["2"],
        "synchronous": ["true"],
    }
    assert url.rpartition("/")[2].startswith("my_net_")
    assert url.endswith(".mar")
    output = capsys.readouterr()
    assert '{"status": "registered ü"}' in output.out
    # A reader of the job's log must not be able to fetch the model.
    assert urlsplit(url).path not in output.out + output.err


def test_only_the_archive_is_served_until_it_is_registered(
    torchserve: MockTorchServe, model: str
) -> None:
    serve.register(model, torchserve.address, {}, port=0)
    assert torchserve.elsewhere == [404] * 7
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(torchserve.query["url"][0])  # noqa: S310 - ours


def test_each_run_has_another_secret_path(torchserve: MockTorchServe, model: str) -> None:
    urls = set()
    for _ in range(3):
        serve.register(model, torchserve.address, {}, port=0)
        urls.add(urlsplit(torchserve.query["url"][0]).path.split("/")[1])
    assert len(urls) == 3
    assert min(map(len, urls)) >= 32


def test_only_the_interface_to_the_api_listens(model: str) -> None:
    with serve._serving(model, "model.mar", "127.0.0.1", 0) as url:
        port = urlsplit(url).port
        assert port is not None
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection(("127.0.0.2", port), 5)


def test_head_returns_the_size_and_other_methods_fail(model: str) -> None:
    with serve._serving(model, "model.mar", "127.0.0.1", 0) as url:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - ours
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            assert answer.headers["Content-Length"] == str(len(MODEL))
            assert answer.read() == b""
        assert status(url, "PUT") == 501


def test_model_may_be_on_any_file_system(torchserve: MockTorchServe) -> None:
    fsspec.filesystem("memory").pipe_file("/models/m.mar", MODEL)
    serve.register("memory://models/m.mar", torchserve.address, {"model_name": "m"}, port=0)
    assert torchserve.archive == MODEL


def test_model_name_is_not_a_path(torchserve: MockTorchServe, model: str) -> None:
    serve.register(model, torchserve.address, {"model_name": "../a/b?c#d"}, port=0)
    assert torchserve.archive == MODEL
    assert torchserve.query["model_name"] == ["../a/b?c#d"]


def test_error_of_torchserve_is_reported(torchserve: MockTorchServe, model: str) -> None:
    torchserve.status = 409
    with pytest.raises(ProgramError, match=r"returned 409 Conflict: .*registered ü"):
        serve.register(model, torchserve.address, {}, port=0)


def test_timeout_is_an_error(torchserve: MockTorchServe, model: str) -> None:
    torchserve.is_silent = True
    with pytest.raises(ProgramError, match=r"did not answer within 0.2 s"):
        serve.register(model, torchserve.address, {}, port=0, timeout=0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_unreachable_api_is_an_error(model: str) -> None:
    api = f"http://localhost:{free_port()}"
    with pytest.raises(ProgramError, match=rf"cannot reach {api}: .*refused"):
        serve.register(model, api, {}, port=0)


def test_used_port_is_an_error(torchserve: MockTorchServe, model: str) -> None:
    port = int(torchserve.server_address[1])
    with pytest.raises(ProgramError, match=f"cannot listen on 127.0.0.1 port {port}"):
        serve.register(model, torchserve.address, {}, port=port)


@pytest.mark.parametrize(
    ("api", "message"),
    [
        ("localhost:8081", "is not an address like"),
        ("file:///etc/passwd", "is not an address like"),
        ("http://", "is not an address like"),
        ("http://host:port", "is not an address like"),
        ("http://no-such-host.invalid:8081", "cannot resolve no-such-host.invalid"),
    ],
)
def test_invalid_address_is_an_error(api: str, message: str, model: str) -> None:
    with pytest.raises(ProgramError, match=message):
        serve.register(model, api, {}, port=0)


@pytest.mark.parametrize("path", ["nope.mar", "memory://nope.mar", "."])
def test_missing_model_is_an_error(path: str, torchserve: MockTorchServe) -> None:
    with pytest.raises(ProgramError, match=f"--model_path {path} is not a file"):
        serve.register(path, torchserve.address, {}, port=0)
    assert torchserve.query == {}


def test_dryrun_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    serve.main(["--model_path", "/no", "--management_api", "http://no.invalid", "--dryrun"])
    assert capsys.readouterr().out == "App serve started successfully\n"


@pytest.mark.parametrize(
    ("address", "expected"),
    [("http://127.0.0.1:80", "127.0.0.1"), ("https://localhost", "127.0.0.1")],
)
def test_get_routable_ip_to(address: str, expected: str) -> None:
    assert serve.get_routable_ip_to(address) in (expected, "::1")


def test_rand_id_without_a_user_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(serve.getpass, "getuser", no_name)
    assert serve.rand_id().startswith("uid")


def test_default_arguments() -> None:
    args = vars(serve.parse_args(["--model_path", "m", "--management_api", "http://x"]))
    unset = dict.fromkeys(serve.TORCHSERVE_PARAMS)
    assert args == {
        "model_path": "m",
        "management_api": "http://x",
        "timeout": 60,
        "dryrun": False,
        "port": 8222,
        **unset,
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--model_path", "m"], "--management_api"),
        (["--model_path", "m", "--management_api", "x", "--port", "70000"], "from 0 to 65535"),
        (["--model_path", "m", "--management_api", "x", "--port", "http"], "from 0 to 65535"),
        (["--model_path", "m", "--management_api", "x", "--timeout", "0"], "greater than 0"),
    ],
)
def test_invalid_arguments_are_an_error(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        serve.main(argv)
    error = capsys.readouterr().err
    assert exited.value.code == 2
    assert message in error
    assert error.count("\n") == 1
