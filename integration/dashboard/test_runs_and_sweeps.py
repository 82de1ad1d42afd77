"""What users do with runs of trackers and with sweeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dashboard_site import NewScreen, Site, job_place, make_site
from playwright.sync_api import Page, expect

from patience import wait_for


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
        expect(page.locator(".trow")).to_have_count(6)  # the rows follow the heading
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
