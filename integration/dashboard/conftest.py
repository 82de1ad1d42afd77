"""Fixtures: a home with local jobs, a sweep and runs; the dashboard; chromium.

The pictures of the pages go to ``.nox/reports/dashboard``, or to the folder of
``TORCHX_DASHBOARD_PICTURES``.
"""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from dashboard_site import HANDLE, NewScreen, Screen, Site, make_site

from patience import PATIENCE

#: Width, height and colours of the screens on which each journey is made. The gate has the first.
LOOKS = {
    "desktop": (1600, 900, "light"),
    "tablet": (800, 900, "dark"),
    "phone": (360, 800, "dark"),
    "light-phone": (360, 800, "light"),
}

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a home with jobs of all kinds, a sweep, and runs in a tracker."""
    folder = tmp_path_factory.mktemp("site")
    found = make_site(folder)
    jobs = {
        "baseline": ("--lr", "0.05", "--steps", "20"),
        "odd": ("--flags=--odd --lines 20",),
        "broken": ("--replicas", "3", "--flags=--lines 50 --fail"),
        "retried": ("--retries", "1", "--flags=--fail"),
        "long": ("--flags=--lines 200000",),
        "waiting": (f"--flags=--wait-for {folder}/go",),
        "live": ("--replicas", "2", f"--flags=--lines 5 --follow {folder}/live.txt"),
        "changed": ("--lr", "0.2", "--steps", "20"),
    }
    for name, arguments in jobs.items():
        shown = "baseline" if name == "changed" else name
        found.handles[name] = found.submit(shown, *arguments)
    grid = ("--grid", "lr=0.05,0.2", "--grid", "width=64,256")
    job = ("job.py:train", "--steps", "8", "--name", "sweep")
    printed = found.torchx("sweep", "run", "-s", "local_cwd", "--wait", *grid, *job)
    found.handles["sweep"] = str(HANDLE.findall(printed)[0])
    for name in ("baseline", "odd", "long", "changed"):
        found.torchx("wait", found.handles[name])
    yield found
    (folder / "go").touch()
    with open(folder / "live.txt", "a", encoding="utf-8") as file:
        file.write("end\n")


@pytest.fixture(scope="session")
def address(site: Site) -> Iterator[str]:
    """Return the address of a dashboard that allows actions."""
    with site.dashboard("--allow-actions") as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "no chromium on PATH: integration/install.sh dashboard installs it"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "new_screen" in metafunc.fixturenames and "width" not in metafunc.fixturenames:
        metafunc.parametrize("look", LOOKS, indirect=True)


@pytest.fixture
def look(request: pytest.FixtureRequest) -> tuple[int, int, str]:
    """Return width, height and colours of the screen."""
    return LOOKS[getattr(request, "param", "desktop")]


@pytest.fixture
def new_screen(browser: Browser, address: str, look: tuple[int, int, str]) -> Iterator[NewScreen]:
    """Return a function that opens a screen; at the end, no screen may have a problem."""
    opened: list[tuple[BrowserContext, Screen]] = []

    def new(
        width: int = look[0],
        height: int = look[1],
        scheme: str = look[2],
        at: str = address,
        **more: Any,
    ) -> Screen:
        options: Any = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
        context = browser.new_context(**options, accept_downloads=True)
        screen = Screen(context, at, **more)
        opened.append((context, screen))
        return screen

    yield new
    problems = [problem for _, screen in opened for problem in screen.problems]
    for context, _ in opened:
        context.close()
    assert problems == []


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
