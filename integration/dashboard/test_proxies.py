"""The page behind a proxy: jupyter-server-proxy, which changes the path of requests or keeps it."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from dashboard_site import NewScreen, Site, job_place
from http_server import HttpServer
from playwright.sync_api import expect

TOKEN = "token-of-jupyter"


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """Start a Jupyter server, whose extension is jupyter-server-proxy, and yield it."""
    folder = tmp_path_factory.mktemp("jupyter")
    options = {
        "ServerApp.root_dir": folder,
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "ServerApp.port_retries": 0,
        "IdentityProvider.token": TOKEN,
    }
    server = HttpServer(
        lambda port: [
            *(sys.executable, "-m", "jupyter_server", f"--ServerApp.port={port}"),
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        "/api",
        folder / "jupyter.log",
        {**os.environ, "HOME": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)},
    )
    yield server
    server.stop()


def behind(jupyter: HttpServer, address: str, kind: str) -> str:
    """Return the address of a dashboard below a Jupyter server."""
    port, token = re.findall(r":(\d+)/.*(#token=.*)", address)[0]
    return f"{jupyter.url}{kind}/{port}/?token={TOKEN}{token}"


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["/proxy", "/proxy/absolute"], ids=["removed", "kept"])
def test_job_its_live_log_and_actions_work_behind_jupyter(
    new_screen: NewScreen, site: Site, jupyter: HttpServer, kind: str, free_port: int
) -> None:
    is_kept = kind != "/proxy"
    prefix = ("--prefix", f"{kind}/{free_port}") if is_kept else ()
    with site.dashboard("--allow-actions", "--port", str(free_port), *prefix) as address:
        screen = new_screen(at=behind(jupyter, address, kind))
        page = screen.open(job_place(site.handles["live"], "logs"))
        page.locator(".line").first.wait_for()
        with open(site.folder / "live.txt", "a", encoding="utf-8") as file:
            file.write(f"{(name := site.new_name('behind'))}!\n")
        page.locator(".line", has_text=f"{name}!").first.wait_for()
        handle = site.submit(name, f"--flags=--wait-for {site.folder}/never")
        screen.go(job_place(handle))
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the job").click()
        expect(page.locator(".job-head .state")).to_have_text("CANCELLED")
        assert urlsplit(page.url).path == f"{kind}/{free_port}/"


@pytest.mark.gate
def test_proxies_are_told_to_pass_on_each_event_at_once(address: str) -> None:
    url, token = address.split("#token=")
    request = urllib.request.Request(  # noqa: S310 - http
        f"{url}api/stream", b"{}", {"X-TorchX-Token": token}
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert "stream" in json.loads(answer.readline().removeprefix(b"data: "))
