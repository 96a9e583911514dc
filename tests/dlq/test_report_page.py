"""The report on dead letters in a browser: without a script, without the network, in any light."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.cli.reports import cause, example, findings, hours_ago
from window_consumer.dlq.report.page import page

CONTRAST = """
() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(each => {
      const part = each / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(each => each.nodeType === 3 && each.data.trim());
    if (!own || element.closest("svg")) continue;
    const [one, two] = [getComputedStyle(element).color, behind(element)].map(light);
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) found.push(`${element.tagName} ${element.textContent.slice(0, 30)} ${ratio}`);
  }
  return found;
}
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    stack = "ValueError: <b>no card</b>\n  in charge\n"
    late = cause(
        error_class="Late" * 30,
        last_ms=hours_ago(4),
        first_ms=hours_ago(5),
        periods={hours_ago(5): 10},
        fingerprint="f" * 16,
    )
    file.write_text(
        page(findings(cause(examples=(example(error_stack=stack),)), late), "workers.yaml"), "utf-8"
    )
    return file


def test_the_page_reads_without_script_and_asks_nobody(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    asked: list[str] = []
    seen = context.new_page()
    seen.on("request", lambda request: asked.append(request.url))
    problems: list[str] = []
    seen.on("console", lambda message: problems.append(message.text))
    seen.goto(report.as_uri())
    assert asked == [report.as_uri()]
    assert problems == []
    assert seen.get_by_role("heading", name="Causes").is_visible()
    assert seen.get_by_role("img", name="Share of causes").is_visible()
    assert seen.get_by_role("img", name="Dead letters by hour").is_visible()
    assert seen.get_by_text("<b>no card</b>").is_visible(), "the first example is open"
    seen.get_by_text("As a table").click()
    assert seen.get_by_role("columnheader", name="From").is_visible()
    seen.get_by_role("link", name="shop.NoCard").click()
    assert seen.url.endswith("#cause-1")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(
    browser: Browser, report: Path, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(color_scheme=scheme)
    seen = context.new_page()
    seen.goto(report.as_uri())
    assert seen.evaluate(CONTRAST) == []
    context.close()


def test_dark_is_dark_and_paper_is_white(browser: Browser, report: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    seen = context.new_page()
    seen.goto(report.as_uri())
    colour = "getComputedStyle(document.body).backgroundColor"
    assert seen.evaluate(colour) == "rgb(17, 21, 27)"
    seen.emulate_media(media="print")
    assert seen.evaluate(colour) == "rgb(255, 255, 255)"
    assert seen.evaluate("getComputedStyle(document.body).color") == "rgb(27, 36, 48)"
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, report: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    seen = context.new_page()
    seen.goto(report.as_uri())
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
