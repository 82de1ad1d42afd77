"""What users do with logs: search long ones, read odd ones, and follow them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dashboard_site import NewScreen, Relay, Site, job_place
from playwright.sync_api import Page, expect


def lines(page: Page) -> list[str]:
    """Return the text of the drawn lines, without their numbers."""
    found: list[str] = page.locator(".line").evaluate_all(
        "lines => lines.map(line => [...line.children].filter(part => !part.matches('.no, .who'))"
        ".map(part => part.textContent).join(''))"
    )
    return found


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
    search.fill("/^(.+)+!$/")
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
