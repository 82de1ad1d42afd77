"""Measure the pages in chromium: ``python integration/dashboard/figures.py``.

Prints the time until the rows of 1,000 jobs are drawn, the time to filter 10,000 runs, the time to
draw after a jump in 200,000 lines, and the load of the machine. ``tools/bench/rows/dashboard.py``
measures the server.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "testing"))

from dashboard_site import Screen, job_place, make_site
from playwright.sync_api import sync_playwright

from torchx_tracker_fsspec.tracker import create

JOBS, RUNS = 1000, 10_000
PLUGIN = f"""
from torchx_specs import AppState
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.schedulers import ListAppResponse, Scheduler

class Many(Scheduler):
    def schedule(self, info): ...
    def _submit_dryrun(self, app, cfg): ...
    def describe(self, app_id): ...
    def _cancel_existing(self, app_id): ...
    def list(self, cfg=None):
        state = AppState.RUNNING
        return [ListAppResponse(f"job-{{n}}", state, name=f"train-{{n}}") for n in range({JOBS})]

@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("many", lambda session_name, **_: Many("many", session_name))
"""
# The time from the start of the navigation to the frame after the first row.
DRAWN = """new MutationObserver((_, observer) => {
  if (document.querySelector('.trow')) {
    observer.disconnect();
    requestAnimationFrame(() => { window.drawn = performance.now(); });
  }
}).observe(document, { childList: true, subtree: true });"""
# The time of a synchronous filter, with the layout of the new rows.
FILTER = """text => {
  const search = document.querySelector('input[type=search]');
  const began = performance.now();
  search.value = text;
  search.dispatchEvent(new Event('input'));
  document.body.offsetHeight;
  return performance.now() - began;
}"""
JUMP = """() => {
  const log = document.querySelector('.log');
  const began = performance.now();
  log.scrollTop = log.scrollHeight / 2;
  log.dispatchEvent(new Event('scroll'));
  document.body.offsetHeight;
  return performance.now() - began;
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = make_site(Path(folder))
        site.install("many", PLUGIN)
        handle = site.submit("long", "--flags=--lines 200000")
        site.torchx("wait", handle)
        tracker = create(f"data:,protocol=file%0Aroot_path={folder}/runs")
        for number in range(RUNS):
            tracker.add_metadata(
                f"x://torchx/run-{number}", lr=number / RUNS, loss=1 / (number + 1)
            )
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1600, "height": 900})
        with site.dashboard() as address:
            figures: dict[str, Any] = {}
            for name in ("first page", "second page"):
                screen = Screen(context, address)
                screen.page.add_init_script(DRAWN)
                screen.page.goto(address)
                screen.page.locator(".trow", has_text="train-0").first.wait_for()
                drawn = screen.page.evaluate("window.drawn") / 1000
                figures[f"{name}: rows of 1,000 jobs drawn, s"] = drawn
            page = screen.page
            screen.go("#/runs")
            page.get_by_text(f"{RUNS:,} runs", exact=True).wait_for()
            found = [
                page.evaluate(FILTER, text) / 1000 for text in ("lr<0.5", "run-77", "loss>0.1")
            ]
            figures["10,000 runs filtered, s"] = max(found[1:])
            figures["the first filter, s"] = found[0]
            screen.go(job_place(handle, "logs"))
            page.get_by_text("200,002 lines").wait_for()
            figures["jump in 200,002 lines, s"] = page.evaluate(JUMP) / 1000
        browser.close()
    for name, value in figures.items():
        print(f"{name}: {value:.3f}")
    print("load of the machine:", *os.getloadavg())


if __name__ == "__main__":
    main()
