"""The form of ``dev`` in a real Chromium, with the worker that runs what it sends."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.dev.conftest import StartDev, shop


def test_a_record_is_sent_and_seen_and_a_mistake_is_shown_until_it_is_gone(
    start_dev: StartDev, browser: Browser
) -> None:
    dev = start_dev()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{dev.port}/")
    form = page.locator("#send form")
    expect(form.locator("[name=topic]")).to_have_value("orders")
    form.locator("[name=key]").fill("hugo")
    form.locator("[name=partition]").fill("3")
    form.locator("[name=value]").fill("paid")
    form.locator("[name=headers]").fill("type: order\nfrom: the form")
    form.get_by_role("button").click()
    expect(form.locator("output")).to_contain_text("orders[3]")
    dev.command.wait_for("one paid 0")
    processed = page.locator("dl.figures div", has_text="processed").locator("dd")
    expect(processed.first).to_contain_text("1")

    form.locator("[name=headers]").fill("no colon")
    form.get_by_role("button").click()
    expect(form.locator("output.error")).to_contain_text("no colon")

    form.locator("[name=headers]").fill("")
    form.locator("[name=value]").fill("broken")
    form.get_by_role("button").click()
    dev.command.wait_for("one broken 1")
    letters = page.get_by_role("link", name="Dead letters")
    dead = letters.get_attribute("href")
    assert dead == "dead-letters"

    dev.change("def charge(:\n")
    dev.wait_for_status(503)
    expect(page.locator("#connection.lost")).to_contain_text("shop:app")
    expect(page.locator("#output")).to_contain_text("SyntaxError")
    dev.change(shop("two"))
    dev.wait_for_status(200)
    expect(page.locator("#connection:not(.lost)")).to_be_visible()
    expect(page.locator("#output")).to_be_hidden()
    letters.click()
    expect(page.get_by_role("cell", name="ValueError").first).to_be_visible()
    page.close()
