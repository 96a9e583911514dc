"""The live window in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.admin import TOKEN, Asking, MadeUpBoard, asking
from tests.web.boards import Shop
from window_consumer.web.feed import FRAME_S

pytestmark = pytest.mark.alone

SECONDS = 5

EVIL = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
EVIL_NAME = EVIL.replace("/", "")
"""Names of workers and topics stand in paths, and have no slash."""


class Looking:
    """A page that looks at a board, and what it complains of."""

    def __init__(self, page: Page, ask: Asking, board: Shop):
        self.page = page
        self.board = board
        self.complaints: list[str] = []
        self.ask = ask
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)
        page.goto(f"http://127.0.0.1:{ask.port}/")

    def _hear(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)


Look = Callable[..., Looking]


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """``look(board, token=...)``: a page of its own, which must not complain."""
    opened: list[Any] = []

    def look(board: Shop, token: str | None = None, **settings: Any) -> Looking:
        server = asking(board, token)
        page = browser.new_page(**settings)
        looking = Looking(page, server.__enter__(), board)
        opened.append((looking, server))
        return looking

    yield look
    for looking, server in opened:
        looking.page.close()
        server.__exit__(None, None, None)
        assert looking.complaints == []


def test_the_page_says_first_what_hangs_and_where(look: Look) -> None:
    page = look(Shop.with_a_call_that_hangs()).page
    expect(page.locator(".worker h2")).to_have_text("charge")
    trouble = page.locator(".troubles button").first
    expect(trouble).to_contain_text("Hovers")
    expect(trouble).to_contain_text("orders[0] for 12 s while later cells are done: offset 7")
    trouble.click()
    expect(page.locator("#details-title")).to_contain_text("offsets 5 to 9 · 1 of 5 open")
    expect(page.locator("#details pre")).to_contain_text("in wait_for_the_bank")
    page.keyboard.press("Escape")
    expect(page.locator("#details")).not_to_be_visible()


def test_the_window_slides_as_cells_come_and_go(look: Look) -> None:
    looking = look(Shop(rows=["drw"]))
    canvas = looking.page.locator(".windows canvas").first
    expect(canvas).to_have_attribute(
        "aria-label", "orders[0], 3 of 8 cells: 1 done, 1 waiting, 1 running"
    )
    looking.board.slide(["rw"])
    expect(canvas).to_have_attribute("aria-label", "orders[0], 2 of 8 cells: 1 waiting, 1 running")
    expect(looking.page.locator(".windows tbody td").nth(1)).to_have_text("5")


def test_cells_are_reached_and_opened_with_the_keyboard_alone(look: Look) -> None:
    looking = look(Shop(rows=["drw", "rr"]))
    page = looking.page
    expect(page.locator(".windows canvas")).to_have_count(2)
    page.locator(".windows canvas").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#news")).to_have_text("cell 1 of 2: running")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    expect(page.locator("#news")).to_have_text("cell 3 of 3: waiting")
    page.keyboard.press("Enter")
    expect(page.locator("#details")).to_be_visible()
    assert looking.board.asked[-1].startswith("cell 2 ")


def test_a_click_on_a_cell_asks_for_that_cell(look: Look) -> None:
    looking = look(Shop(rows=["ddddw"]))
    canvas = looking.page.locator(".windows canvas").first
    expect(canvas).to_have_attribute("aria-label", "orders[0], 5 of 8 cells: 4 done, 1 waiting")
    cell = min(26.0, (canvas.bounding_box() or {"width": 0.0})["width"] / 8)
    canvas.click(position={"x": 4.5 * cell, "y": 10})
    expect(looking.page.locator("#details")).to_be_visible()
    assert looking.board.asked[-1].startswith("cell 4 ")


def test_a_worker_is_paused_in_two_steps_and_a_partition_in_one(look: Look) -> None:
    looking = look(Shop(rows=["rw"]))
    page = looking.page
    page.get_by_role("button", name="Pause worker").click()
    page.get_by_role("button", name="Really pause?").click()
    expect(page.locator("#news")).to_have_text("charge is paused")
    page.get_by_role("button", name="Pause orders[0]").click()
    expect(page.locator("#news")).to_have_text("orders[0] is paused")
    assert [each for each in looking.board.asked if each.endswith("True")] == [
        "charge None True",
        "charge orders[0] True",
    ]


def test_what_comes_from_outside_never_runs(look: Look) -> None:
    looking = look(Shop.evil(EVIL, EVIL_NAME))
    page = looking.page
    expect(page.locator(".worker h2")).to_have_text(EVIL_NAME)
    expect(page.locator(".about")).to_contain_text(EVIL)
    page.locator(".troubles button").first.click()
    expect(page.locator("#details td.error")).to_have_text(EVIL)
    expect(page.locator("#details code")).to_have_text(EVIL)
    expect(page.locator("#details pre")).to_contain_text(EVIL)
    expect(page.locator("#details-title")).to_contain_text(EVIL_NAME)
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.querySelectorAll('script:not([src]), main img').length") == 0
    # Even if something were markup, the policy would not let it run.
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=ran=1>')")
    page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in looking.complaints)
    looking.complaints.clear()


def test_with_a_token_there_is_a_form_first_and_the_page_behind_it(look: Look) -> None:
    looking = look(Shop(rows=["rw"]), token=TOKEN)
    page = looking.page
    page.get_by_label("Token").fill("not the token at all")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That was not the token.")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(".worker h2")).to_have_text("charge")
    page.get_by_role("button", name="pause orders[0]").click()
    expect(page.locator("#news")).to_have_text("orders[0] is paused")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(f"http://127.0.0.1:{looking.ask.port}/")
    expect(page.get_by_label("Token")).to_be_visible()


def test_light_and_dark_follow_the_system_until_somebody_chooses(look: Look) -> None:
    page = look(Shop(rows=["rw"]), color_scheme="dark").page

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert background() == "rgb(17, 21, 27)"
    page.get_by_role("button", name="Switch between light and dark").click()
    assert background() == "rgb(246, 247, 249)"
    page.reload()
    assert background() == "rgb(246, 247, 249)"


def test_another_sites_page_cannot_pause_anything(look: Look, browser: Browser) -> None:
    looking = look(Shop(rows=["rw"]))
    with asking(MadeUpBoard()) as other:
        page = browser.new_page()
        page.goto(f"http://localhost:{other.port}/api/session")
        url = f"http://127.0.0.1:{looking.ask.port}/api/workers/charge/pause"
        page.evaluate("url => fetch(url, {method: 'POST', mode: 'no-cors'}).catch(() => 0)", url)
        page.close()
    assert not [each for each in looking.board.asked if each.endswith("True")]


def test_64_windows_of_64_cells_at_5_updates_a_second_drop_nothing(look: Look) -> None:
    # Here for some seconds; for a minute in the benchmark live-window.
    looking = look(Shop.busy(64, 64))
    page = looking.page
    expect(page.locator(".windows canvas")).to_have_count(64)
    before = page.evaluate("({...window.wcCounts})")
    page.wait_for_timeout(SECONDS * 1000)
    after = page.evaluate("window.wcCounts")
    came, drawn = (after[each] - before[each] for each in ("frames", "drawn"))
    assert after["missed"] == 0
    assert came >= 0.8 * SECONDS / FRAME_S
    assert drawn >= came - 2
