"""Each page at three widths, in light and dark colours: contrast, width, shifts, requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from dashboard_site import NewScreen, Screen, Site, job_place

SCREENS = [
    pytest.param(360, "dark", marks=pytest.mark.gate),
    pytest.param(1600, "light", marks=pytest.mark.gate),
    (360, "light"),
    (800, "light"),
    (800, "dark"),
    (1600, "dark"),
]
MOST_SHIFT = 0.1


def findings(screen: Screen) -> Iterator[str]:
    page = screen.page
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    if width > 0:
        yield f"{width} px wider than the screen"
    shift = page.evaluate("window.shift")
    if shift > MOST_SHIFT:
        yield f"layout shift {shift}"
    page.evaluate("window.shift = 0")
    found: Any = Axe().run(page, options={"resultTypes": ["violations"]}).response
    for violation in found["violations"]:
        if violation["impact"] in ("serious", "critical"):
            nodes = [(node["target"], node["failureSummary"][-150:]) for node in violation["nodes"]]
            yield f"axe: {violation['id']}: {nodes[:3]}"


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_pages_are_readable(new_screen: NewScreen, site: Site, width: int, scheme: str) -> None:
    screen = new_screen(width, 800 if width < 500 else 900, scheme)
    page = screen.open()
    handles = site.handles
    places = {
        "jobs": ("#/jobs", ".trow"),
        "job": (job_place(handles["broken"]), ".failure"),
        "logs": (job_place(handles["broken"], "logs"), ".line"),
        "odd-log": (job_place(handles["odd"], "logs"), ".line"),
        "definition": (job_place(handles["changed"], "definition"), "td.after"),
        "events": (job_place(handles["broken"], "events"), ".events li"),
        "runs": ("#/runs", ".trow"),
        "comparison": ("", ".u-over"),
        "run": ("#/runs/fsspec/" + job_place(handles["baseline"])[6:], ".u-over"),
        "sweeps": ("#/sweeps", ".trow"),
        "sweep": ("#/sweeps/" + job_place(handles["sweep"])[6:], ".pc.best"),
        "cluster": ("#/cluster", ".card"),
        "missing": (job_place("local_cwd://torchx/gone"), ".problem"),
    }
    problems = []
    screen.expected.append("404 (Not Found)")  # the answer for the missing job
    for name, (place, wanted) in places.items():
        if place:
            screen.go(place)
        else:
            for box in page.locator(".trow input").all()[:3]:
                box.check()
            page.get_by_role("button", name="Compare 3 runs").click()
        page.locator(wanted).first.wait_for()
        page.evaluate("document.fonts.ready")
        screen.picture(f"{name}-{width}-{scheme}")
        problems += [f"{name}: {problem}" for problem in findings(screen)]
    assert problems == []
