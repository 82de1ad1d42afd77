"""A home with jobs, dashboards that show it, and pages of a browser that open them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import BrowserContext, Page

from patience import PATIENCE, wait_for

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Path(__file__).parent / "project"
PICTURES = Path(
    os.environ.get("TORCHX_DASHBOARD_PICTURES") or ROOT / ".nox" / "reports" / "dashboard"
)
TORCHX = Path(sys.prefix) / "bin" / "torchx"
OWN = "http://127.0.0.1"
HANDLE = re.compile(r"^\w+://\S+$", re.M)


@dataclass
class Site:
    """A home with jobs, and the addresses of dashboards that show it."""

    folder: Path
    environment: dict[str, str]
    handles: dict[str, str] = field(default_factory=dict)
    names: int = 0

    def torchx(self, *arguments: str) -> str:
        """Run a command, and return its output."""
        return self._run(str(TORCHX), *arguments)

    def shown_in_notebook(self, handle: str) -> str:
        """Return the HTML that a notebook shows for a job or a sweep."""
        program = "import sys, torchx_notebook; shown = torchx_notebook.show(sys.argv[1],"
        program += " follow=False); print('\\f', shown._repr_html_())"
        return self._run(sys.executable, "-c", program, handle).partition("\f")[2]

    def _run(self, *argv: str) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder / "project",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, name: str, *arguments: str) -> str:
        """Submit a job that continues in the background, and return its handle."""
        run = ("run", "-s", "local_cwd", "--detach", "job.py:train", "--name", name)
        found = HANDLE.search(self.torchx(*run, *arguments))
        assert found is not None
        return found[0]

    def new_name(self, stem: str) -> str:
        """Return a name that no other job of this home has."""
        self.names += 1
        return f"{stem}-number{self.names}"

    def install(self, name: str, source: str) -> None:
        """Install a module as a plugin, and configure its scheduler, which is then in use.

        Args:
            name: Name of the scheduler.
            source: The module.
        """
        plugins = self.folder / "plugins"
        info = plugins / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[torchx]\n{name} = {name}_plugin\n")
        (plugins / f"{name}_plugin.py").write_text(source, "utf-8")
        with open(self.folder / "project" / ".torchxconfig", "a", encoding="utf-8") as file:
            file.write(f"\n[{name}]\nkey = value\n")
        self.environment["PYTHONPATH"] = str(plugins)

    @contextmanager
    def dashboard(self, *options: str) -> Iterator[str]:
        """Start a dashboard, yield the address that it prints, and interrupt it."""
        process = subprocess.Popen(
            [str(TORCHX), "dashboard", "--no-browser", *options],
            cwd=self.folder / "project",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
                process.stdout.close()


def make_site(folder: Path) -> Site:
    """Return an empty home with the project, a tracker and a folder for artifacts."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("TORCHX")}
    variables.update(HOME=str(folder / "home"), NO_COLOR="1", ARTIFACTS=str(folder / "artifacts"))
    variables["PATH"] = f"{TORCHX.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    for name in ("home", "artifacts", "runs"):
        (folder / name).mkdir()
    shutil.copytree(PROJECT, folder / "project")
    config = "[torchx:tracker]\nfsspec =\n\n[tracker:fsspec]\nprotocol = file\n"
    config += f"root_path = {folder}/runs\n"
    (folder / "project" / ".torchxconfig").write_text(config, "utf-8")
    return Site(folder, variables)


class Relay:
    """Connects a port of its own with a server, until :meth:`cut`, as a laptop's network does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections, and accept no new ones."""
        self._open = False
        for connection in self._sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()
        self._sockets.clear()

    def resume(self) -> None:
        """Accept connections again."""
        self._open = True

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._open:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Screen:
    """A page of the browser, which collects everything that must not happen."""

    def __init__(self, context: BrowserContext, address: str, own: str = OWN) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.address = address
        self.problems: list[str] = []
        #: Parts of messages of the browser that a test causes. They can arrive after it has ended.
        self.expected: list[str] = []
        self._network_changed = False
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.page.on("request", lambda request: self._request(request.url, own))
        self.page.add_init_script(
            "window.shift = 0;"
            "new PerformanceObserver((list) => { for (const entry of list.getEntries())"
            " if (!entry.hadRecentInput) window.shift += entry.value; })"
            ".observe({ type: 'layout-shift', buffered: true });"
        )

    def _console(self, message: Any) -> None:
        if "ERR_NETWORK_CHANGED" in message.text:
            # The tests of other services add network interfaces at the same time, and the browser
            # then ends the requests in progress.
            self._network_changed = True
        elif message.type in ("error", "warning") and not any(
            part in message.text for part in self.expected
        ):
            self.problems.append(f"console: {message.text}")

    def _request(self, url: str, own: str) -> None:
        if not url.startswith((own, "blob:", "data:")):
            self.problems.append(f"requests {url}")

    def open(self, place: str = "") -> Page:
        """Open the dashboard, and go to a place such as ``#/runs``."""
        self.page.goto(self.address)
        connected = self.page.locator("#connection.connected")
        wait_for(lambda: connected.count() or self._network_changed)
        while not connected.count():  # the page could not load all of its files
            self._network_changed = False
            self.page.reload()
            wait_for(lambda: connected.count() or self._network_changed)
        if place:
            self.go(place)
        return self.page

    def go(self, place: str) -> None:
        self.page.evaluate("place => { location.hash = place; }", place)

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


NewScreen = Callable[..., Screen]


def job_place(handle: str, tab: str = "") -> str:
    """Return the place of a job's page."""
    return f"#/job/{quote(handle, safe='')}{f'/{tab}' if tab else ''}"
