"""What users do on the pages, with real local jobs, a sweep and a tracker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import TORCHX, NewScreen, Relay, Site, job_place, make_site
from playwright.sync_api import Locator, Page, expect

from patience import wait_for


def lines(page: Page) -> list[str]:
    """Return the text of the drawn lines, without their numbers."""
    found: list[str] = page.locator(".line").evaluate_all(
        "lines => lines.map(line => [...line.children].filter(part => !part.matches('.no, .who'))"
        ".map(part => part.textContent).join(''))"
    )
    return found


def column(page: Page, title: str) -> list[str]:
    """Return the texts of a column, from the first row to the last."""
    found: list[str] = page.evaluate(
        "title => { const heads = [...document.querySelectorAll('[role=columnheader]')];"
        " const at = heads.findIndex((head) => head.innerText.startsWith(title));"
        " return [...document.querySelectorAll('.trow')]"
        ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map((row) => row.children[at].innerText); }",
        title,
    )
    return found


def press_until_focus(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached with the Tab key")


@pytest.mark.gate
def test_job_appears_while_the_page_is_open_and_filters_find_it(
    new_screen: NewScreen, site: Site
) -> None:
    page = new_screen().open()
    row = page.locator(".trow")
    row.first.wait_for()
    name = site.new_name("appears-later")
    site.submit(name)
    row.filter(has_text=name).wait_for()
    newest = page.locator(".trow[aria-rowindex='2']")
    expect(newest).to_contain_text(name)
    page.get_by_label("Filter by name").fill(name.replace("-", " "))
    expect(row).to_have_count(1)
    page.get_by_label("State", exact=True).select_option("FAILED")
    expect(page.get_by_text("No job matches the filter.")).to_be_visible()
    page.get_by_label("Filter by name").fill("broken")
    expect(row).to_have_count(1)
    page.get_by_label("Filter by name").fill("")
    page.get_by_label("State", exact=True).select_option("")
    page.get_by_label("mine").check()
    expect(page.get_by_role("status").filter(has_text=" jobs")).to_contain_text(" of ")


@pytest.mark.gate
def test_job_and_its_log_are_reached_with_the_keyboard_only(
    new_screen: NewScreen, site: Site
) -> None:
    page = new_screen().open()
    page.locator(".trow").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("broken")
    expect(page.locator(".trow")).to_have_count(1)
    press_until_focus(page, "[role=grid]")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="broken")).to_be_visible()
    press_until_focus(page, "[role=tab]")
    page.keyboard.press("ArrowRight")
    page.locator(".line", has_text="Traceback").first.wait_for(state="attached")
    press_until_focus(page, ".log")
    page.keyboard.press("e")
    expect(page.locator(".line.current")).to_contain_text("Traceback")


def fact(page: Page, name: str) -> Locator:
    """Return the value beside a name on the page of a job."""
    return page.locator(".facts div", has=page.get_by_text(name, exact=True)).locator("dd")


@pytest.mark.gate
def test_job_shows_why_it_failed_and_what_has_changed(new_screen: NewScreen, site: Site) -> None:
    screen = new_screen()
    page = screen.open(job_place(site.handles["broken"]))
    expect(page.locator(".failure")).to_contain_text("exit code 1")
    expect(fact(page, "Attempts")).to_have_text("1")
    expect(page.locator("table tbody tr")).to_have_count(3)
    expect(page.get_by_text(f"torchx rerun {site.handles['broken']}")).to_be_visible()
    screen.go(job_place(site.handles["changed"], "definition"))
    expect(page.locator("td.before")).to_have_text("0.05")
    expect(page.locator("td.after")).to_have_text("0.2")
    assert "s3cret-value" not in page.content()
    page.get_by_role("tab", name="Events").click()
    expect(page.locator(".events li").first).to_contain_text("submitted")
    expect(page.locator(".events li").last).to_contain_text("ended: SUCCEEDED")
    screen.go(job_place(site.handles["retried"]))
    expect(fact(page, "Attempts")).to_have_text("2")


@pytest.mark.gate
def test_long_log_is_searched_and_a_slow_expression_is_stopped(
    new_screen: NewScreen, site: Site
) -> None:
    page = new_screen().open(job_place(site.handles["long"], "logs"))
    status = page.locator(".logview [role=status]")
    expect(status).to_contain_text("200,002 lines")
    search = page.get_by_label("Search in the log")
    search.fill("/line 19999\\d of/")
    expect(status).to_contain_text("10 matches")
    page.get_by_label("matches only").check()
    expect(page.locator(".line")).to_have_count(10)
    search.fill("/^(\\w+\\s?)*!$/")
    expect(status).to_contain_text("stopped after 1 s")
    search.fill("LINE 199999")
    expect(status).to_contain_text("0 matches")
    search.fill("line 199999 ")
    expect(status).to_contain_text("1 matches")
    page.get_by_label("matches only").uncheck()
    search.press("Enter")
    expect(page.locator(".line.current")).to_contain_text("line 199999")
    search.fill("/(/")
    expect(status).to_contain_text("Invalid regular expression")


@pytest.mark.gate
def test_odd_output_is_text(new_screen: NewScreen, site: Site) -> None:
    page = new_screen().open(job_place(site.handles["odd"], "logs"))
    line = page.locator(".line")
    line.filter(has_text="binary").wait_for()
    page.get_by_label("Streams").select_option("apart")
    # The streams arrive in any order, and libraries of the job may also write to standard error.
    on_stderr = page.locator(".line.stderr", has_text="warning: on standard error")
    expect(on_stderr).to_have_count(1)
    expect(line.filter(has_text="done")).to_have_count(1)
    shown = lines(page)
    assert any("</script><script>document.title='broken'" in text for text in shown)
    assert "red \\u202egnirts\\u202c end" in shown
    assert "100% |" + "█" * 20 + "|" in shown
    assert not any(text.startswith(" 20%") for text in shown)
    assert max(map(len, shown)) <= 2001
    expect(page.locator(".a-f1")).to_have_text("red")
    line.filter(has_text="xxxxxxxx").click()
    expect(page.locator(".line-detail")).to_contain_text("1,000,000 characters")
    with page.expect_download() as found:
        page.get_by_role("button", name="Download").click()
    content = Path(found.value.path()).read_bytes()
    assert b"x" * 1_000_000 in content
    assert "broken" not in page.title()


@pytest.mark.gate
def test_no_line_is_lost_when_the_connection_is_cut(
    new_screen: NewScreen, site: Site, address: str
) -> None:
    live, word = site.folder / "live.txt", site.new_name("live")

    def append(first: int, last: int) -> None:
        with open(live, "a", encoding="utf-8") as file:
            file.write("".join(f"{word} {number}\n" for number in range(first, last)))

    port = re.findall(r":(\d+)/", address)[0]
    relay = Relay(int(port))
    try:
        screen = new_screen(at=address.replace(port, str(relay.port), 1))
        screen.expected.append("ERR_")
        page = screen.open(job_place(site.handles["live"], "logs"))
        page.get_by_role("button", name="trainer/1").click()
        append(0, 5)
        page.get_by_text(f"{word} 4", exact=True).wait_for()
        relay.cut()
        page.locator("#connection.connecting").wait_for()
        append(5, 10)
        relay.resume()
        append(10, 15)
        page.get_by_text(f"{word} 14", exact=True).wait_for()
        shown = [line for line in lines(page) if line.startswith(word)]
        assert shown == [f"{word} {number}" for number in range(15)]
    finally:
        relay.close()


@pytest.mark.gate
def test_runs_are_filtered_compared_and_their_artifacts_are_safe(
    new_screen: NewScreen, site: Site
) -> None:
    screen = new_screen()
    page = screen.open("#/runs")
    expect(page.get_by_role("status").filter(has_text="runs")).to_have_text("6 runs")
    is_wide = page.get_by_role("columnheader", name="loss").count()  # a phone has two columns
    if is_wide:
        durations = column(page, "Duration")
        assert all(re.fullmatch(r"\d+(\.\d)? s|\d+ min \d\d s", text) for text in durations)
    name = "loss" if is_wide else "lr"
    for order in ("descending", "ascending"):
        page.get_by_role("button", name=name).click()
        expect(page.get_by_role("columnheader", name=name)).to_have_attribute("aria-sort", order)
        values = [float(text) for text in column(page, name)]
        assert values == sorted(values, reverse=order == "descending")
        assert len(values) == 6
    page.get_by_label("Filter the runs").fill("lr=0.05 width<100")
    expect(page.locator(".trow")).to_have_count(2)
    for box in page.locator(".trow input").all():
        box.check()
    page.get_by_role("button", name="Compare 2 runs").click()
    expect(page.locator(".plot h3")).to_have_text(["loss", "accuracy"])
    page.get_by_label("log scale").check()
    page.get_by_label("smoothing").fill("0.6")
    expect(page.locator(".plot canvas")).to_have_count(2)
    screen.go("#/runs/fsspec/" + job_place(site.handles["baseline"])[6:])
    card = page.locator(".card")
    expect(card).to_have_count(5)
    card.filter(has_text="summary.json").get_by_role("button", name="Show").click()
    expect(card.locator("pre")).to_contain_text('"name": "a<b>"')
    card.filter(has_text="notes.md").get_by_role("button", name="Show").click()
    expect(card.filter(has_text="notes.md").locator("pre")).to_have_text("# <b>Notes</b>")
    card.filter(has_text="curve.png").get_by_role("button", name="Show").click()
    image = card.locator("img")
    image.wait_for()
    wait_for(lambda: image.evaluate("image => image.naturalWidth") == 1)
    for name in ("page.html", "image.svg"):
        shown = card.filter(has_text=name)
        expect(shown.get_by_role("button", name="Show")).to_have_count(0)
        with page.expect_download() as found:
            shown.get_by_role("button", name="Download").click()
        assert found.value.suggested_filename == name


@pytest.mark.gate
def test_sweep_marks_its_best_element(new_screen: NewScreen, site: Site) -> None:
    page = new_screen().open("#/sweeps")
    page.locator(".trow").first.click()
    expect(page.locator(".pc:not(.best)")).to_have_count(3)
    expect(page.locator(".pc.best")).to_have_count(1)
    expect(page.locator(".best-text")).to_contain_text("Best: element 3, loss")
    page.get_by_label("Best is").select_option("max")
    expect(page.locator(".best-text")).not_to_contain_text("element 3")
    expect(page.locator(".trow", has_text="★")).to_have_count(1)


@pytest.mark.gate
def test_actions_cancel_rerun_and_delete(new_screen: NewScreen, site: Site) -> None:
    handle = site.submit(site.new_name("to-cancel"), f"--flags=--wait-for {site.folder}/never")
    screen = new_screen()
    page = screen.open(job_place(handle))
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job", exact=True).click()
    expect(page.locator(".job-head .state")).to_have_text("CANCELLED")
    page.get_by_role("button", name="Run again…").click()
    values = page.locator("dialog input")
    values.evaluate_all(
        "inputs => { inputs.find((i) => i.value === '0.1').value = '0.7';"
        " inputs.find((i) => i.value.includes('/never')).value = ''; }"
    )
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(lambda url: handle.rpartition("/")[2] not in url)
    page.get_by_role("tab", name="Definition").click()
    expect(page.locator("td.after").filter(has_text="0.7")).to_have_count(1)
    made = page.evaluate("decodeURIComponent(location.hash.split('/')[2])")
    site.torchx("wait", made)
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    known = json.loads(site.torchx("list", "-o", "json"))
    assert made not in [app["handle"] for app in known]


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


def test_hundred_thousand_runs_with_odd_values_are_shown_and_filtered(
    new_screen: NewScreen, tmp_path: Path
) -> None:
    found = make_site(tmp_path)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "many_runs.py").write_text(
        "import math\n"
        "from torchx_tracker_fsspec.tracker import FsspecTracker\n\n"
        "ODD = '<script>alert(1)</script>\\x1b[31m\\u202e'\n\n"
        "class Tracker(FsspecTracker):\n"
        "    def __init__(self): pass\n"
        "    def run_ids(self, **kwargs): return (f'x://torchx/run-{n}' for n in range(100_000))\n"
        "    def metadata(self, run_id):\n"
        "        n = int(run_id.rpartition('-')[2])\n"
        "        return {ODD: n, 'loss': math.nan if n % 2 else -math.inf, 'text': ODD}\n\n"
        "def create(config): return Tracker()\n",
        "utf-8",
    )
    config = "[torchx:tracker]\nmany = many_runs:create\n"
    (found.folder / "project" / ".torchxconfig").write_text(config, "utf-8")
    found.environment["PYTHONPATH"] = str(tmp_path / "plugins")
    with found.dashboard() as address:
        page = new_screen(width=1600, at=address).open("#/runs")  # a phone has two columns
        page.get_by_text("100,000 runs", exact=True).wait_for()
        page.get_by_label("Filter the runs").fill("run-77777")
        expect(page.locator(".trow")).to_have_count(1)
        expect(page.locator(".trow")).to_contain_text("NaN")
        assert page.locator("main script").count() == 0
