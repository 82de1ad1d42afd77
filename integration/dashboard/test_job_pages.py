"""What users do with jobs: find them, read why they failed, cancel, rerun and delete them."""

from __future__ import annotations

import json

import pytest
from dashboard_site import NewScreen, Site, job_place
from playwright.sync_api import Locator, Page, expect


def press_until_focus(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached with the Tab key")


def fact(page: Page, name: str) -> Locator:
    """Return the value beside a name on the page of a job."""
    return page.locator(".facts div", has=page.get_by_text(name, exact=True)).locator("dd")


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
