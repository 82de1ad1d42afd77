"""A token service for registries, as in https://distribution.github.io/distribution/spec/auth/token/."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ISSUER = "torchx-test"
SERVICE = "registry"


def make_certificate(
    folder: Path, name: str, *, authority: Path | None = None
) -> tuple[Path, Path]:
    """Create a certificate and its key.

    Args:
        folder: The folder for both files.
        name: The common name, and the name of the files. It must be an IP address if there is an
            authority.
        authority: The certificate of the authority that signs; None makes a self-signed one.

    Returns:
        The paths of the certificate and of its key.
    """
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={name}"]
    if authority is not None:
        command += ["-addext", f"subjectAltName=IP:{name}", "-addext", "basicConstraints=CA:FALSE"]
        command += ["-CA", str(authority), "-CAkey", str(authority.with_suffix(".key"))]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


class TokenService:
    """Accepts the name ``user`` with the password ``right``, or the identity token ``known``.

    As ghcr.io does, the service answers 403 if one of the requested actions is not allowed.

    Args:
        folder: The folder for the service's certificate and key.
        rights: The user's valid actions (``pull``, ``push``), by the repository's first folder.

    Attributes:
        requests: A text for each request: the kind of its credentials, and its scopes.
        denies_several_scopes: Whether the service denies requests with more than one scope.
    """

    def __init__(self, folder: Path, rights: dict[str, set[str]]) -> None:
        self.rights = rights
        self.denies_several_scopes = False
        self._certificate, self._key = make_certificate(folder, "tokens")
        self.requests: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                right = "Basic " + base64.b64encode(b"user:right").decode()
                service._answer(self, "basic", self.headers["Authorization"] == right, query)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                query = parse_qs(body)
                service._answer(self, "identity", query.get("refresh_token") == ["known"], query)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def settings(self) -> dict[str, str]:
        """The section ``auth.token`` in the configuration of a registry that uses this service."""
        return {
            "realm": f"http://127.0.0.1:{self._server.server_port}/token",
            "service": SERVICE,
            "issuer": ISSUER,
            "rootcertbundle": str(self._certificate),
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(
        self,
        request: BaseHTTPRequestHandler,
        kind: str,
        known: bool,
        query: dict[str, list[str]],
    ) -> None:
        scopes = [scope for text in query.get("scope", []) for scope in text.split()]
        self.requests.append(f"{kind} {' '.join(scopes)}")
        status = self._status(known, scopes)
        body = json.dumps({"token": self._token(scopes)} if status == 200 else {}).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _status(self, known: bool, scopes: list[str]) -> int:
        if not known:
            return 401
        is_denied = self.denies_several_scopes and len(scopes) > 1
        return 403 if is_denied or not all(map(self._allows, scopes)) else 200

    def _allows(self, scope: str) -> bool:
        _, repository, actions = scope.split(":")
        rights = self.rights.get(repository.partition("/")[0], set())
        return set(actions.split(",")) <= rights

    def _token(self, scopes: list[str]) -> str:
        lines = self._certificate.read_text().split("\n")
        der = "".join(line for line in lines if line and not line.startswith("-"))
        now = int(time.time())
        parts = [scope.split(":") for scope in scopes]
        claims: dict[str, Any] = {
            "iss": ISSUER,
            "sub": "user",
            "aud": SERVICE,
            "exp": now + 60,
            "nbf": now - 60,
            "iat": now,
            "jti": str(now),
            "access": [
                {"type": kind, "name": ":".join(name), "actions": actions.split(",")}
                for kind, *name, actions in parts
            ],
        }
        head = {"typ": "JWT", "alg": "RS256", "x5c": [der]}
        text = ".".join(_encoded(json.dumps(part).encode()) for part in (head, claims))
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self._key)],
            input=text.encode(),
            capture_output=True,
            check=True,
        )
        return f"{text}.{_encoded(signed.stdout)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
