"""Open each page of the site in a browser: ``python docs/site/browser_check.py SITE PICTURES``.

Each page is opened at the width of a desktop in light colours, and of a phone in dark colours. A
page must not write errors to the console, send requests to another server, or be wider than the
screen, and axe must have no serious finding. On a desktop, no block of code and no table is wider
than its column, also in folded parts. The site's search must work without a web server.
Pictures of the pages go to the folder PICTURES. The browser is Debian's ``chromium``. A third
argument such as ``'s*.html'`` selects pages.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Page, sync_playwright

SCREENS = {("desktop", "light"): (1280, 900), ("phone", "dark"): (390, 844)}
SERIOUS = {"serious", "critical"}
MANY_ELEMENTS = 3_000


#: Returns the beginning of each block that is wider than its column, and leaves the page unchanged.
WIDE_BLOCKS = """() => {
  const folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((each) => { each.open = true; });
  const blocks = document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap");
  const wide = [...blocks].filter((each) => each.scrollWidth > each.clientWidth + 1);
  folded.forEach((each) => { each.open = false; });
  return wide.map((each) => each.textContent.trim().slice(0, 50));
}"""


def layout_findings(page: Page, *, desktop: bool) -> Iterator[str]:
    """Yield a problem if an open page is wider than the screen, or a block than its column."""
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    if width > 0:
        yield f"{width} px wider than the screen"
    if desktop:
        for text in page.evaluate(WIDE_BLOCKS):
            yield f"a block is wider than its column: {text!r}"


def axe_findings(page: Page) -> Iterator[str]:
    """Yield the serious findings of axe on an open page."""
    size = page.evaluate("document.querySelectorAll('*').length")
    # For thousands of elements, the contrast check takes half a minute. Skip it, because all pages
    # have the same colours.
    rules = {"color-contrast": {"enabled": size < MANY_ELEMENTS}}
    # With "preload", axe would request the style sheets again, which fails for pages from files.
    options = {"resultTypes": ["violations"], "rules": rules, "preload": False}
    for violation in Axe().run(page, options=options).response["violations"]:
        if violation["impact"] in SERIOUS:
            nodes = [node["target"] for node in violation["nodes"]]
            yield f"axe: {violation['id']}: {violation['help']}: {nodes[:3]}"


def check(browser: Any, site: Path, pictures: Path, only: str) -> Iterator[str]:
    """Yield the problems of the pages that match ``only``, and take a picture of each page."""
    pages = sorted(
        path for path in site.rglob("*.html") if path.name != "404.html" and path.match(only)
    )
    for (screen, scheme), (width, height) in SCREENS.items():
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        page = context.new_page()
        said: list[str] = []
        listen(page, said)
        for path in pages:
            name = path.relative_to(site).with_suffix("").as_posix()
            page.goto(path.as_uri())
            found = [*said, *layout_findings(page, desktop=screen == "desktop")]
            # In dark colours, run axe only on the first page of each folder.
            if scheme == "light" or path == min(path.parent.glob("*.html")):
                found += axe_findings(page)
            for problem in found:
                yield f"{name} ({screen}, {scheme}): {problem}"
            said.clear()
            target = pictures / screen / f"{name.replace('/', '-')}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=target)
        context.close()


#: What people ask, and the heading of docs/howto.md that the search must find first.
QUESTIONS = {
    "run my script on slurm": "run-my-script-on-slurm",
    "why is it pending": "why-is-my-job-pending",
    "stop a job": "stop-a-job",
    "use gpus": "use-gpus",
    "environment variables": "set-environment-variables",
    "password": "pass-a-password-or-token",
    "copy files out": "copy-files-out-of-a-job",
    "sweep best": "run-a-sweep-and-find-the-best-run",
    "write a scheduler": "write-a-scheduler",
    "which value wins": "set-defaults-and-know-which-value-wins",
    "json fields": "read-json-fields-in-a-script",
    "upgrade": "upgrade-or-come-from-upstreams-torchx",
}


def search_problems(browser: Any, site: Path) -> Iterator[str]:
    """Yield a problem for each question whose answer is not the first hit of the site's search.

    The site is opened from files.
    """
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.click(".md-search__input")
    meta = page.locator(".md-search-result__meta")
    for question, heading in QUESTIONS.items():
        try:
            # The page searches when a key is released.
            for text, said in (("", "Type to start searching"), (question, "matching document")):
                page.fill(".md-search__input", text)
                page.keyboard.press("End")
                meta.filter(has_text=said).wait_for(timeout=60_000)
        except Error as e:
            yield f"the search finds nothing for '{question}': {e.message.splitlines()[0]}"
            continue
        # The first hit is a page; the sections of the page are below it.
        link = page.locator(".md-search-result__link[href*='#']").first
        first = urlsplit(str(link.get_attribute("href")))
        if not first.path.endswith("/howto.html") or first.fragment != heading:
            found = f"{Path(first.path).name}#{first.fragment}"
            yield f"the search for '{question}' finds {found} first, not howto.html#{heading}"
    page.close()


def listen(page: Page, said: list[str]) -> None:
    """Append the errors of a page, and its requests to other servers, to a list."""

    def console(message: Any) -> None:
        if message.type == "error":
            said.append(f"console: {message.text}")

    def request(sent: Any) -> None:
        if not sent.url.startswith(("file:", "data:", "blob:")):
            said.append(f"requests {sent.url}")

    page.on("console", console)
    page.on("request", request)
    page.on("pageerror", lambda error: said.append(f"script: {error}"))


def main() -> int:
    """Check the search and the selected pages, print the problems, and return the exit code."""
    site, pictures = map(Path, sys.argv[1:3])
    only = sys.argv[3] if len(sys.argv) > 3 else "*"
    program = shutil.which("chromium")
    if program is None:
        print("no chromium on PATH: integration/install.sh docs installs it")
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        problems = list(search_problems(browser, site.resolve()))
        problems += check(browser, site.resolve(), pictures, only)
        browser.close()
    print(*problems, f"{len(problems)} problems; pictures of the pages are in {pictures}", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
