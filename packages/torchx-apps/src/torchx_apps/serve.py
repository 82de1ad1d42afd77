r"""Registers a model archive with a TorchServe instance.

    python -m torchx_apps.serve --model_path s3://bucket/model.mar \
        --management_api http://torchserve:8081 --model_name mymodel --initial_workers 1

TorchServe downloads a model from a URL. This program therefore serves the archive over HTTP until
TorchServe has registered it, and then exits. The program listens only on the network interface
through which it reaches the management API, and serves only this file, under a secret path.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import os
import re
import secrets
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from argparse import ArgumentTypeError
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from .program import ArgumentParser, ProgramError, positive_float, run

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

PROG = "torchx_apps.serve"
PORT = 8222
TORCHSERVE_PARAMS = (
    "model_name",
    "handler",
    "runtime",
    "batch_size",
    "max_batch_delay",
    "initial_workers",
    "synchronous",
    "response_timeout",
)
_API_DOCS = "https://pytorch.org/serve/management_api.html#register-a-model"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_args(argv: list[str]) -> Namespace:
    """Parse the arguments; print one line and exit with code 2 if they are invalid."""
    parser = ArgumentParser(prog=PROG, description="Register a model archive with TorchServe.")
    parser.add_argument(
        "--model_path", required=True, help="fsspec URL of the model archive (.mar)"
    )
    parser.add_argument(
        "--management_api",
        required=True,
        help="address of TorchServe's management API, for example http://localhost:8081",
    )
    parser.add_argument(
        "--timeout",
        type=positive_float,
        default=60,
        help="seconds to wait for TorchServe's response (default: %(default)s)",
    )
    parser.add_argument("--dryrun", action="store_true", help="print a message and exit")
    parser.add_argument(
        "--port",
        type=_port,
        default=PORT,
        help="port to serve the archive on, which TorchServe must be able to reach;"
        " 0 is any free port (default: %(default)s)",
    )
    for name in TORCHSERVE_PARAMS:
        parser.add_argument(f"--{name}", help=f"parameter {name} of TorchServe, see {_API_DOCS}")
    return parser.parse_args(argv)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def main(argv: list[str]) -> None:
    """Register the model and print TorchServe's response."""
    args = parse_args(argv)
    if args.dryrun:
        print("App serve started successfully")
        return
    params = {name: vars(args)[name] for name in TORCHSERVE_PARAMS if vars(args)[name] is not None}
    print(register(args.model_path, args.management_api, params, args.port, args.timeout))


def register(
    model_path: str,
    management_api: str,
    params: dict[str, str],
    port: int = PORT,
    timeout: float = 60,
) -> str:
    """Request the registration of a model, and serve its archive until TorchServe responds.

    Args:
        model_path: fsspec URL of the archive.
        management_api: Address of the management API.
        params: Parameters of TorchServe's request "register model", by name.
        port: Port to serve the archive on; 0 is any free port.
        timeout: How long to wait for TorchServe's response, in seconds.

    Returns:
        The text of TorchServe's response.

    Raises:
        ProgramError: A URL is not valid, the archive does not exist, the port is in use, or the
            management API cannot be reached or returns an error.
    """
    api = _check_address(management_api)
    stem = f"{(params.get('model_name') or 'model')[:100]}_{rand_id()}"
    name = re.sub(r"[^\w.-]", "_", stem) + ".mar"
    host = get_routable_ip_to(api)
    with _serving(model_path, name, host, port) as url:
        print(f"serving {model_path} at {host} for {api}", flush=True)
        return _post(f"{api}/models?{urlencode({'url': url, **params})}", api, timeout)


def _check_address(management_api: str) -> str:
    address = urlsplit(management_api)
    try:
        is_valid = address.scheme in _DEFAULT_PORTS and address.hostname and address.port != 0
    except ValueError:  # the port is not a number
        is_valid = False
    if not is_valid:
        raise ProgramError(
            f"--management_api {management_api!r} is not an address like http://localhost:8081"
        )
    return management_api.rstrip("/")


def rand_id() -> str:
    """Return a unique name that contains the user's name: ``<user>_<16 hex digits>``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name, which is common in containers
        user = f"uid{os.getuid()}"
    return f"{user}_{secrets.token_hex(8)}"


def get_routable_ip_to(addr: str) -> str:
    """Return this machine's IP address on the route to a host, without sending a packet.

    Args:
        addr: A URL, for example ``http://torchserve:8081``.

    Raises:
        ProgramError: The host name cannot be resolved, or there is no route to the host.
    """
    url = urlsplit(addr)
    port = url.port or _DEFAULT_PORTS.get(url.scheme, 80)
    try:
        found = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise ProgramError(f"cannot resolve {url.hostname}: {error.strerror}") from None
    problem: OSError | None = None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)
            except OSError as error:
                problem = error
                continue
            return str(probe.getsockname()[0])
    reason = problem.strerror if problem else "it has no address"
    raise ProgramError(f"no route to {url.hostname}: {reason}")


@contextlib.contextmanager
def _serving(model_path: str, name: str, host: str, port: int) -> Iterator[str]:
    """Serve the archive in a thread and yield its URL; download the archive if it is remote."""
    from .locations import Location

    source = Location.of(model_path)
    if source.is_folder() or not source.fs.exists(source.path):
        raise ProgramError(f"--model_path {model_path} is not a file")
    with tempfile.TemporaryDirectory(prefix="torchx-serve-") as folder:
        url_path = f"{secrets.token_urlsafe(24)}/{name}"
        path = os.path.join(folder, url_path)
        os.mkdir(os.path.dirname(path))
        if source.is_local:
            os.symlink(source.path, path)
        else:
            print(f"downloading {model_path}", flush=True)
            source.fs.get_file(source.path, path)
        kind = _IPv6Server if ":" in host else ThreadingHTTPServer
        try:
            server = kind((host, port), partial(_Handler, directory=folder))
        except OSError as error:
            raise ProgramError(f"cannot listen on {host} port {port}: {error.strerror}") from None
        with server:
            thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
            thread.start()
            try:
                address = f"[{host}]" if ":" in host else host
                yield f"http://{address}:{server.server_address[1]}/{quote(url_path)}"
            finally:
                server.shutdown()
                thread.join()


class _IPv6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(SimpleHTTPRequestHandler):
    """Serves the files below a folder; the path of a folder is not found."""

    server_version, sys_version = "torchx", ""
    timeout = 60  # seconds; ends the thread of an idle client

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        """Answer that the folder does not exist, because the list has the secret path."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the request line contains the secret path."""


def _post(url: str, api: str, timeout: float) -> str:
    # S310 warns of file: URLs; _check_address allows only http and https.
    request = urllib.request.Request(url, data=b"", method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            return str(response.read().decode("utf-8", "replace")).strip()
    except urllib.error.HTTPError as error:
        text = error.read().decode("utf-8", "replace").strip()
        raise ProgramError(f"{api} returned {error.code} {error.reason}: {text}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None)  # of a URLError: the connection was not made
        if isinstance(reason or error, TimeoutError):
            raise ProgramError(f"{api} did not answer within {timeout:g} s") from None
        if reason:
            raise ProgramError(f"cannot reach {api}: {reason}") from None
        raise ProgramError(f"{api} closed the connection: {error}") from None


if __name__ == "__main__":
    run(main, PROG)
