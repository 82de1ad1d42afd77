"""How users reach the dashboard: its address and token, an exported page, an empty home."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import TORCHX, NewScreen, Site, job_place, make_site
from playwright.sync_api import expect

from patience import wait_for


@pytest.mark.gate
def test_exported_page_works_from_a_file(new_screen: NewScreen, site: Site, tmp_path: Path) -> None:
    handles = [site.handles[name] for name in ("broken", "odd", "sweep")]
    printed = site.torchx("dashboard", "--export", str(tmp_path / "report"), "--runs", *handles)
    path = Path(printed.strip())
    assert path.stat().st_mode & 0o777 == 0o600
    screen = new_screen(at=path.as_uri(), own="file:")
    page = screen.page
    page.goto(screen.address)
    expect(page.locator(".trow")).to_have_count(2)
    screen.go(job_place(handles[0], "logs"))
    page.get_by_label("Search in the log").fill("/out of memory/")
    expect(page.locator(".logview [role=status]")).to_contain_text("matches")
    expect(page.locator(".line.match").first).to_be_visible()
    screen.go("#/runs/fsspec/" + job_place(site.handles["baseline"])[6:])
    page.locator(".u-over").first.wait_for()
    screen.go("#/sweeps/" + job_place(handles[2])[6:])
    page.locator(".pc.best").wait_for()
    screen.picture("export")
    assert "s3cret-value" not in path.read_text("utf-8")


@pytest.mark.gate
def test_page_needs_the_token_and_offers_no_actions_without_the_option(
    new_screen: NewScreen, site: Site
) -> None:
    with site.dashboard("--prefix", "/user/me/proxy/") as address:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/user/me/proxy/#token=[\w-]{43}", address)
        first = new_screen(at=address)
        first.expected += ["403 (Forbidden)", "ERR_"]
        page = first.open()
        page.locator(".trow").first.wait_for()
        assert "token" not in page.url
        assert page.get_by_role("button", name="Cancel…").count() == 0
        answer: Any = page.evaluate(
            "async () => (await fetch('api/action', {method: 'POST', body: '{}',"
            " headers: {'X-TorchX-Token': sessionStorage.token}})).status"
        )
        assert answer == 403
        other = new_screen(at=address.partition("#")[0])
        other.expected.append("401 (Unauthorized)")
        other.page.goto(other.address)
        expect(other.page.locator(".problem")).to_contain_text("token is missing")
    page.locator("#connection.connecting").wait_for()


def test_dashboard_that_is_started_again_on_its_port_asks_for_its_address(
    new_screen: NewScreen, site: Site
) -> None:
    with site.dashboard() as address:
        port = re.findall(r":(\d+)/", address)[0]
        screen = new_screen(at=address)
        screen.expected += ["401 (Unauthorized)", "ERR_"]
        page = screen.open()
        page.locator(".trow").first.wait_for()
    with site.dashboard("--port", port):
        expect(page.locator(".problem")).to_contain_text("token is missing or wrong")


def test_scheduler_that_hangs_has_a_message_beside_the_jobs(
    new_screen: NewScreen, tmp_path: Path
) -> None:
    found = make_site(tmp_path)
    found.install(
        "hanging",
        "import threading\n"
        "from torchx_specs.hookspecs import SchedulerPlugin, hookimpl\n\n"
        "def create(*arguments, **options):\n    threading.Event().wait()\n\n"
        "@hookimpl\ndef torchx_schedulers():\n"
        "    yield SchedulerPlugin('hanging', create)\n",
    )
    found.submit("beside")
    with found.dashboard() as address:
        page = new_screen(at=address).open()
        page.locator(".trow", has_text="beside").wait_for()
        expect(page.locator(".problem.silent")).to_have_text("hanging no answer for 5 s")
        page.locator(".trow", has_text="beside").click()
        expect(page.get_by_role("heading", name="beside")).to_be_visible()


def test_empty_home_explains_what_to_do(new_screen: NewScreen, tmp_path: Path) -> None:
    found = make_site(tmp_path)
    (found.folder / "project" / ".torchxconfig").unlink()
    with found.dashboard() as address:
        screen = new_screen(at=address)
        page = screen.open()
        expect(page.get_by_text("There are no jobs yet.")).to_be_visible()
        screen.picture("no-jobs")
        screen.go("#/runs")
        expect(page.get_by_text("No tracker is configured.")).to_be_visible()
        screen.go("#/sweeps")
        expect(page.get_by_text("There are no sweeps yet.")).to_be_visible()


def test_redirect_file_opens_the_page(new_screen: NewScreen, site: Site, tmp_path: Path) -> None:
    # The program records its arguments, as `ps` would show them to other users.
    program = tmp_path / "browser"
    part, whole = tmp_path / "argv.part", tmp_path / "argv"
    program.write_text(f'#!/bin/sh\necho "$@" > {part}\nmv {part} {whole}\n')
    program.chmod(0o755)
    environment = {**site.environment, "BROWSER": f"{program} %s"}
    process = subprocess.Popen(
        [str(TORCHX), "dashboard"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        token = process.stdout.readline().strip().partition("#token=")[2]
        argv = wait_for(lambda: whole.exists() and whole.read_text())
        assert token
        assert token not in str(argv)
        screen = new_screen(at=str(argv).strip(), own="")
        screen.open()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        process.stdout.close()
    assert not Path(str(argv).strip().removeprefix("file://")).exists()
