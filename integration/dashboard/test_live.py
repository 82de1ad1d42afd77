"""What must stay while the pages change: focus, cursor, order; and many pages at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_site import NewScreen, Site, job_place, make_site
from playwright.sync_api import Page, expect

from patience import wait_for

CLUSTER = """
from torchx_specs import AppState
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.schedulers import GpuCounts, ListAppResponse, Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures

class Cluster(Scheduler):
    features = SchedulerFeatures(gpus=True)
    def schedule(self, info): ...
    def _submit_dryrun(self, app, cfg): ...
    def describe(self, app_id): ...
    def _cancel_existing(self, app_id): ...
    def list(self, cfg=None):
        name = "<script>alert(1)</script>\\x1b[31m\\u202e"
        return [ListAppResponse("job", AppState.RUNNING, name=name)]
    def gpus(self, cfg=None):
        return GpuCounts(free=5, used=3, unavailable=8)

class Silent(Cluster):
    def gpus(self, cfg=None):
        raise RuntimeError("forbidden: <b>nodes</b>")

@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("cluster", lambda session_name, **_: Cluster("cluster", session_name))
    yield SchedulerPlugin("silent", lambda session_name, **_: Silent("silent", session_name))
"""


def wait_until_replaced(page: Page) -> None:
    """Wait until a live update has replaced the element that has the focus now."""
    page.evaluate("window.before = document.activeElement")
    wait_for(lambda: page.evaluate("!window.before.isConnected"))


@pytest.mark.gate
def test_focus_stays_on_a_button_that_a_live_update_replaces(
    new_screen: NewScreen, site: Site
) -> None:
    page = new_screen().open(job_place(site.handles["waiting"]))
    expect(page.locator(".job-head .state")).to_have_text("RUNNING")
    page.get_by_role("button", name="Delete…").focus()
    wait_until_replaced(page)
    expect(page.get_by_role("button", name="Delete…")).to_be_focused()


@pytest.mark.gate
def test_cursor_of_a_table_stays_on_its_job_while_others_appear(
    new_screen: NewScreen, site: Site
) -> None:
    page = new_screen().open()
    page.locator(".trow", has_text="broken").wait_for()
    grid = page.get_by_role("grid")
    grid.focus()
    cursor = page.locator(".trow.cursor")
    while "broken" not in cursor.inner_text():
        before = cursor.get_attribute("aria-rowindex")
        page.keyboard.press("ArrowDown")
        expect(cursor).not_to_have_attribute("aria-rowindex", str(before))
    before = cursor.get_attribute("aria-rowindex")
    site.submit(site.new_name("appears-above"))
    expect(cursor).to_have_attribute("aria-rowindex", str(int(before or 0) + 1))
    expect(cursor).to_contain_text("broken")
    expect(grid).to_be_focused()
    expect(grid).to_have_attribute("aria-activedescendant", cursor.get_attribute("id") or "")


@pytest.mark.gate
def test_replicas_are_merged_with_colours_and_chosen(new_screen: NewScreen, site: Site) -> None:
    page = new_screen().open(job_place(site.handles["broken"], "logs"))
    search = page.get_by_label("Search in the log")
    search.fill("loading the data")
    status = page.locator(".logview [role=status]")
    expect(status).to_contain_text("3 matches")
    page.get_by_label("matches only").check()
    names = page.locator(".line .who")
    expect(names).to_have_count(3)
    assert sorted(names.all_inner_texts()) == [f"trainer/{number}" for number in range(3)]
    colours = names.evaluate_all("names => names.map((name) => getComputedStyle(name).color)")
    assert len(set(colours)) == 3
    chip = page.get_by_role("group", name="Replicas").get_by_role("button", name="trainer/1")
    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "false")
    expect(status).to_contain_text("2 matches")
    expect(names).to_have_count(2)
    page.get_by_role("button", name="First error").click()
    expect(page.get_by_label("matches only")).not_to_be_checked()
    expect(page.locator(".line.current")).to_contain_text("Traceback")


@pytest.mark.gate
def test_seven_pages_of_a_browser_share_one_stream(new_screen: NewScreen, site: Site) -> None:
    """A browser opens at most six connections to a server, so the seventh would wait."""
    screen = new_screen()
    pages = [screen.open(job_place(site.handles["live"], "logs"))]
    for _ in range(6):
        page = screen.page.context.new_page()
        page.goto(screen.address)
        page.locator("#connection.connected").wait_for()
        page.evaluate("place => { location.hash = place; }", pages[0].evaluate("location.hash"))
        pages.append(page)
    for page in pages:
        page.locator(".line").first.wait_for()
    with open(site.folder / "live.txt", "a", encoding="utf-8") as file:
        file.write(f"{(text := site.new_name('to all pages'))}!\n")
    for page in pages:
        page.locator(".line", has_text=f"{text}!").first.wait_for()


def test_selected_jobs_are_cancelled(new_screen: NewScreen, site: Site) -> None:
    stem = site.new_name("selected")
    for name in (f"{stem}-a", f"{stem}-b"):
        site.submit(name, f"--flags=--wait-for {site.folder}/never")
    page = new_screen().open()
    page.get_by_label("Filter by name").fill(f"{stem}-")
    row = page.locator(".trow")
    expect(row).to_have_count(2)
    expect(row.filter(has_text="RUNNING")).to_have_count(2)
    for box in row.locator("input").all():
        box.check()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the jobs").click()
    expect(row.filter(has_text="CANCELLED")).to_have_count(2)


@pytest.mark.gate
def test_cluster_page_has_the_gpus_of_schedulers_that_count_them(
    new_screen: NewScreen, tmp_path: Path
) -> None:
    found = make_site(tmp_path)
    found.install("cluster", CLUSTER)
    with open(found.folder / "project" / ".torchxconfig", "a", encoding="utf-8") as file:
        file.write("\n[silent]\nkey = value\n")
    with found.dashboard() as address:
        screen = new_screen(at=address)
        page = screen.open()
        expect(page.locator(".trow")).to_have_count(2)
        expect(page.locator(".trow").first).to_contain_text("<script>alert(1)</script>␛[31m\\u202e")
        screen.go("#/cluster")
        cards = page.locator(".card")
        expect(page.get_by_label("cluster", exact=True).locator(".gpus")).to_have_text(
            "16 GPUs: 3 in use, 5 free, 8 unavailable"
        )
        unknown = page.get_by_label("silent", exact=True)
        expect(unknown).to_contain_text("The number of GPUs is unknown: forbidden: <b>nodes</b>")
        expect(cards.filter(has_text="local_cwd").locator(".gpus")).to_have_count(0)
        screen.picture("gpus")


@pytest.mark.gate
def test_notebook_shows_the_plot_and_table_of_a_sweep_and_the_last_lines_of_a_job(
    new_screen: NewScreen, site: Site
) -> None:
    screen = new_screen(width=900, own="")
    for name in ("sweep", "broken"):
        screen.page.set_content(site.shown_in_notebook(site.handles[name]))
        if name == "sweep":
            expect(screen.page.locator("polyline")).to_have_count(4)
            expect(screen.page.locator("tbody tr")).to_have_count(4)
            expect(screen.page.locator("tbody tr", has_text="★")).to_contain_text("3 ★")
            expect(screen.page.locator("th")).to_contain_text(["element", "lr", "width", "state"])
        else:
            expect(screen.page.locator("b")).to_have_text("FAILED")
            expect(screen.page.locator("pre")).to_contain_text("CUDA out of memory")
        screen.picture(f"notebook-{name}")
