"""The live window in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Locator, Page, expect

from tests.admin.admin import TOKEN, Asking, MadeUpBoard, asking
from tests.admin.boards import Shop, call
from tests.golden_texts import Golden
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.feed import FRAME_S
from window_consumer.admin.interventions import BREAKER_WORDS
from window_consumer.admin.server import serving
from window_consumer.admin.tokens import AccessRole, AccessToken
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import InterventionResult

FRAMES = 15

in_two_steps = pytest.mark.alone  # the page forgets the first click after four seconds

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
        page.on("console", self._receive)
        page.goto(f"http://127.0.0.1:{ask.port}/")

    def _receive(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)


Look = Callable[..., Looking]


@pytest.fixture
def look(browser: Browser) -> Iterator[Look]:
    """``look(board, token=...)``: a page of its own, which must not complain."""
    opened: list[Any] = []

    def look(
        board: Shop, token: str | None = None, *, values: bool = False, **settings: Any
    ) -> Looking:
        server = asking(board, token, values=values)
        page = browser.new_page(**settings)
        looking = Looking(page, server.__enter__(), board)
        opened.append((looking, server))
        return looking

    yield look
    for looking, server in opened:
        looking.page.close()
        server.__exit__(None, None, None)
        assert looking.complaints == []


def read(place: Locator, of: str) -> str:
    """Return what a place on the page shows, as soon as it names what it is about."""
    expect(place).to_contain_text(of)
    return place.inner_text()


def test_the_page_says_first_what_hangs_and_where(look: Look, golden: Golden) -> None:
    page = look(Shop.with_a_call_that_hangs()).page
    expect(page.locator(".worker h2")).to_have_text("charge")
    trouble = page.locator(".troubles button").first
    golden(read(trouble, "orders[0]"))
    trouble.click()
    expect(page.locator("#details-title")).to_contain_text("offsets 5 to 9 · 1 of 5 open")
    expect(page.locator("#details pre")).to_contain_text("in wait_for_the_bank")
    golden(read(page.locator("#details tr.more"), "admin.values"))
    expect(page.get_by_role("button", name="Show the value")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator("#details")).not_to_be_visible()


def test_parked_keys_are_listed_with_what_waits_behind_them(look: Look, golden: Golden) -> None:
    name = {"topic": "orders", "partition": 3}
    first = {"name": name, "offset": 17, "key": EVIL, "in_ladder_s": 240.0, "followers": 5}
    keys = [{**first, "copy": "g.orders.retry.10s/3/7"}, {**first, "key": "hugo", "copy": ""}]
    shop = Shop(rows=["d"], windows={"parked": {"keys": 3, "followers": 10, "longest": keys}})
    page = look(shop).page
    table = page.locator("table.parked")
    golden(read(table.locator("caption"), "10"))
    cells = [EVIL, "orders[3]@17", "g.orders.retry.10s/3/7", "4 min 0 s", "5"]
    expect(table.locator("tbody tr").first.locator("td")).to_have_text(cells)
    expect(table.locator("tbody tr")).to_have_count(2)
    shop.drawn["parked"] = {"keys": 1, "followers": 0, "longest": []}
    expect(table).not_to_be_visible()
    expect(table.locator("tbody tr")).to_have_count(0)


def test_the_window_slides_as_cells_come_and_go(look: Look) -> None:
    looking = look(Shop(rows=["drw"]))
    canvas = looking.page.locator(".windows canvas").first
    expect(canvas).to_have_attribute(
        "aria-label", "orders[0], 3 of 8 cells: 1 done, 1 waiting, 1 running"
    )
    looking.board.slide(["rw"])
    expect(canvas).to_have_attribute("aria-label", "orders[0], 2 of 8 cells: 1 waiting, 1 running")
    expect(looking.page.locator(".windows tbody td").nth(1)).to_have_text("5")


def test_charts_have_all_minutes_even_where_the_first_frames_are_not_drawn(look: Look) -> None:
    page = look(Shop(rows=["rw"])).page
    page.add_init_script(
        "const draw = requestAnimationFrame; window.requestAnimationFrame ="
        " (act) => window.wcCounts.drawn || window.wcCounts.frames > 1 ? draw(act)"
        " : setTimeout(() => requestAnimationFrame(act), 20)"
    )
    page.reload()
    expect(page.locator(".windows canvas")).to_have_count(1)
    assert page.evaluate("wcCounts.frames") > 1
    line = page.locator(".chart", has_text="lag, records").locator("path.s0").get_attribute("d")
    assert len((line or "").split("L")) >= 25


def test_what_only_waits_for_the_breaker_is_no_trouble_of_its_own(
    look: Look, golden: Golden
) -> None:
    windows = {"calls": [call(partition=1), call(partition=2)]}
    shop = Shop(rows=["Hw", "Hw", "Hw"], windows=windows)
    for each, seconds in zip(shop.partitions, (30.0, 10.0, 20.0), strict=True):
        each |= {"hovering_s": seconds, "first_open": 7}
    shop.drawn["breaker"] |= {"state": "open", "seconds": 9.0}
    troubles = look(shop).page.locator(".troubles button")
    expect(troubles).to_have_count(3)
    golden(read(troubles.first, "9.0 s"))
    expect(troubles.nth(1)).to_contain_text("orders[2] for 20 s: offset 7, attempt 1, has been")
    expect(troubles.last).to_contain_text("orders[1] for 10 s: offset 7, attempt 1, has been")


def with_full_windows() -> Shop:
    shop = Shop(rows=["Hyyyyyyy"])
    shop.drawn["breaker"] |= {"state": "open", "seconds": 330.0, "why": "20 of 20 calls failed"}
    return shop


@in_two_steps
def test_bad_records_that_fill_all_windows_are_released_in_two_steps(
    look: Look, golden: Golden
) -> None:
    looking = look(with_full_windows())
    page = looking.page
    trouble = page.locator(".troubles button").first
    golden(read(trouble, "5 min 30 s"))
    page.get_by_role("button", name="Release held records").click()
    assert "charge breaker: release" not in looking.board.asked
    page.get_by_role("button", name="Really release?").click()
    golden(read(page.locator("#news"), "charge"))
    assert "charge breaker: release" in looking.board.asked


@in_two_steps
def test_the_page_says_why_nothing_was_released(look: Look) -> None:
    looking = look(with_full_windows())
    looking.board.answer = BreakerAnswer.NOTHING_HELD
    page = looking.page
    page.get_by_role("button", name="Release held records").click()
    page.get_by_role("button", name="Really release?").click()
    expect(page.locator("#news")).to_contain_text(BREAKER_WORDS[BreakerAnswer.NOTHING_HELD])
    looking.complaints.clear()  # the browser's own line about the status 409


@pytest.mark.parametrize("state", ["closed", "poison", "half-open", "paused"])
def test_where_nothing_may_be_released_there_is_no_button(state: str, look: Look) -> None:
    shop = with_full_windows()
    shop.drawn["breaker"] |= {"state": state}
    page = look(shop).page
    expect(page.locator(".worker h2")).to_have_text("charge")
    expect(page.get_by_role("button", name="Pause worker")).to_be_visible()
    expect(page.get_by_role("button", name="Release held records")).to_be_hidden()


def test_rows_stay_within_the_page_whatever_their_other_columns_need(look: Look) -> None:
    looking = look(Shop(rows=["d" * 8] * 3))
    page, board = looking.page, looking.board
    expect(page.locator(".windows canvas")).to_have_count(3)
    lag = {"records": 100, "seconds": 7000.0}
    board.partitions[1] |= {"row": "H", "hovering_s": 5000.0, "lag": lag}
    expect(page.locator(".windows .flag").nth(1)).to_have_text("hovers 83 min 20 s")
    expect(page.locator(".troubles button").first).to_contain_text("[1] for 83 min 20 s: offset")
    ends = "each => each.getBoundingClientRect().right"
    table, card = (page.locator(each).evaluate(ends) for each in (".windows", ".worker"))
    assert table <= card
    page.set_viewport_size({"width": 320, "height": 640})  # a phone, at three in the morning
    expect(page.locator(".windows .lag").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


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
    expect(page.locator("#details-title")).to_contain_text("offsets")  # the answer is there
    assert looking.board.asked[-1].startswith("cell 2 ")


def test_a_click_on_a_cell_asks_for_that_cell(look: Look) -> None:
    looking = look(Shop(rows=["ddddw"]))
    canvas = looking.page.locator(".windows canvas").first
    expect(canvas).to_have_attribute("aria-label", "orders[0], 5 of 8 cells: 4 done, 1 waiting")
    cell = min(26.0, (canvas.bounding_box() or {"width": 0.0})["width"] / 8)
    canvas.click(position={"x": 4.5 * cell, "y": 10})
    expect(looking.page.locator("#details-title")).to_contain_text("offsets")  # the answer is there
    assert looking.board.asked[-1].startswith("cell 4 ")


@in_two_steps
def test_a_worker_is_paused_in_two_steps_and_a_partition_in_one(look: Look, golden: Golden) -> None:
    looking = look(Shop(rows=["rw"]))
    page = looking.page
    page.get_by_role("button", name="Pause worker").click()
    page.get_by_role("button", name="Really pause?").click()
    golden(read(page.locator("#news"), "charge"))
    page.get_by_role("button", name="Pause orders[0]").click()
    golden(read(page.locator("#news"), "orders[0]"))
    assert [each for each in looking.board.asked if each.endswith("True")] == [
        "charge None True",
        "charge orders[0] True",
    ]


def test_a_new_failure_is_accepted_with_one_button(look: Look, golden: Golden) -> None:
    finding = {"kind": "new_failure", "text": "6 of 20 calls failed with KeyError", "pauses": True}
    looking = look(Shop(rows=["r"], windows={"halted": True, "findings": [finding]}))
    trouble = looking.page.locator(".troubles").first
    golden(read(trouble, "KeyError"))
    looking.page.get_by_role("button", name="Resume worker", exact=True).click()
    golden(read(looking.page.locator("#news"), "charge"))
    assert "charge None False" in looking.board.asked


def test_what_comes_from_outside_never_runs(look: Look) -> None:
    looking = look(Shop.evil(EVIL, EVIL_NAME), values=True)
    page = looking.page
    expect(page.locator(".worker h2")).to_have_text(EVIL_NAME)
    expect(page.locator(".about")).to_contain_text(EVIL)
    page.locator(".troubles button").first.click()
    expect(page.locator("#details td.error")).to_have_text(EVIL)
    expect(page.locator("#details code")).to_have_text(EVIL)
    expect(page.locator("#details pre")).to_contain_text(EVIL)
    expect(page.locator("#details-title")).to_contain_text(EVIL_NAME)
    expect(page.locator("#details .headers dt").first).to_have_text(EVIL)
    expect(page.locator("#details .headers dd")).to_have_text([EVIL, "null"])
    page.get_by_role("button", name="Show the value").click()
    expect(page.locator("#details pre.value")).to_have_text(EVIL)
    assert page.evaluate("window.ran") is None
    assert page.evaluate("document.querySelectorAll('script:not([src]), main img').length") == 0
    # Even if something were markup, the policy would not let it run.
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=data:,x onerror=ran=1>')"
    )
    page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in looking.complaints)
    looking.complaints.clear()


def test_retries_are_reported_by_level_dead_letters_by_reason_and_when_the_breaker_was_open(
    look: Look, golden: Golden
) -> None:
    shop = Shop(rows=["rw"], windows={"calls": [call(offset=offset) for offset in range(12)]})
    for each in shop.worker["history"]:
        each |= {"moved": {"10s": 2.5}, "dead": {"FATAL": 1.5}}
    shop.worker["history"][5]["breaker"] = "open"
    shop.drawn["breaker"] |= {"state": "half-open", "failed": 3, "calls": 40}
    page = look(shop).page
    figures = page.locator(".figures div")
    expect(figures.filter(has_text="retried")).to_contain_text("1m 4, 10s 3")
    expect(figures.filter(has_text="dead letters")).to_contain_text("FATAL 5")
    expect(figures.filter(has_text="breaker")).to_contain_text("half-open 7.5 % failed")
    charts = page.locator(".chart")
    expect(charts.filter(has_text="retries /s").locator("li")).to_have_text(
        ["local 0.5", "10s 2.5"]
    )
    expect(charts.filter(has_text="dead letters /s").locator("li")).to_have_text("FATAL 1.5")
    busy = charts.filter(has_text="slots busy")
    golden(read(busy.locator("li").last, "breaker"))
    expect(busy.locator(".band")).not_to_have_attribute("d", "")
    expect(page.locator(".troubles button").first).to_contain_text("half-open for 0 s: 3 of")
    expect(page.locator(".troubles button").last).to_contain_text("6 further problems")


def test_classes_that_share_the_slots_are_on_the_page(look: Look) -> None:
    def share(name: str, weight: float, **figures: float) -> dict[str, Any]:
        return {"name": name, "weight": weight, "slots": 0, "starved_s": 0.0, **figures}

    largest = [
        share("urgent", 10.0, slots=4, waiting=7, used_s=40.0),
        share("slow", 1.0, waiting=1234, used_s=20.0, starved_s=55.0),
        share("(rest)", 0.0, waiting=0, used_s=1.0),
    ]
    shares = {"order": "strict", "classes": 30, "overflow": 5, "largest": largest}
    page = look(Shop(windows={"shares": shares})).page
    rows = page.locator("table.shares tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).locator("td")).to_have_text(["urgent", "10", "4", "7", "40 s", ""])
    expect(rows.nth(1).locator("td")).to_have_text(["slow", "1", "0", "1,234", "20 s", "55 s"])
    expect(page.locator("table.shares caption")).to_contain_text("(strict): 30")
    expect(page.locator("table.shares caption")).to_contain_text("further classes: 5")


def test_a_value_is_shown_when_somebody_asks_for_it_with_the_keyboard_alone(
    look: Look, golden: Golden
) -> None:
    looking = look(Shop.with_a_call_that_hangs(), values=True)
    page, board = looking.page, looking.board
    board.record_value = {"form": "json", "bytes": 14, "text": '{\n  "a": 1\n}', "is_cut": False}
    page.locator(".troubles button").first.press("Enter")
    page.get_by_role("button", name="Offset 7: 1 header, 120 B").press("Enter")
    expect(page.locator("#details .headers")).to_have_count(0)
    page.keyboard.press("Enter")  # the focus has stayed
    expect(page.locator("#details .headers")).to_have_text("tenanteu")
    assert not [each for each in board.asked if each.startswith("value")]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#details pre.value")).to_have_text('{\n  "a": 1\n}')
    expect(page.locator("#details pre.value")).to_be_focused()
    expect(page.locator("#details tr.more")).to_contain_text("Value: JSON, 14 bytes")
    assert [each for each in board.asked if each.startswith("value")] == ["value orders[0] 7"]
    # What is asked for once a second stays where it is, and so does who looks at it.
    board.details = {**(board.details or {}), "hovering_s": 33.0}
    expect(page.locator("#details")).to_contain_text("33 s")
    expect(page.locator("#details pre.value")).to_be_focused()
    board.details = None
    golden(read(page.get_by_role("status").last, "window"))
    expect(page.locator("#details pre.value")).to_be_visible()
    looking.complaints.clear()  # Chromium's, of the answer 404


@in_two_steps
def test_a_failed_record_is_taken_out_of_the_way_in_two_steps(look: Look, golden: Golden) -> None:
    looking = look(Shop.with_a_blocked_record(), token=TOKEN)
    page, board = looking.page, looking.board
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.locator(".strip canvas").focus()
    page.keyboard.press("Enter")
    skip = page.get_by_role("button", name="Offset 7: Skip")
    skip.press("Enter")
    sure = page.get_by_role("button", name="Offset 7: Really skip? No copy is kept")
    expect(sure).to_be_focused()
    assert not [each for each in board.asked if each.startswith("skip")]
    page.keyboard.press("Enter")
    expect(page.locator("#details").get_by_role("status")).to_have_text("Offset 7 is skipped.")
    board.verdict = InterventionResult.RUNNING
    page.get_by_role("button", name="Offset 7: Dead letter").click()
    page.get_by_role("button", name="Offset 7: Really send it to the dead-letter topic?").click()
    alert = page.locator("#details").get_by_role("alert")
    golden(read(alert, "Offset 7"))
    asked = [each for each in board.asked if "@7" in each]
    assert asked == ["skip: charge orders[0]@7", "dead-letter: charge orders[0]@7"]
    looking.complaints.clear()  # Chromium's, of the answer 409


def test_with_a_token_there_is_a_form_first_and_the_page_behind_it(
    look: Look, golden: Golden
) -> None:
    looking = look(Shop(rows=["rw"]), token=TOKEN)
    page = looking.page
    page.get_by_label("Token").fill("not the token at all")
    page.keyboard.press("Enter")
    golden(read(page.get_by_role("alert"), "token"))
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(".worker h2")).to_have_text("charge")
    page.get_by_role("button", name="pause orders[0]").click()
    expect(page.locator("#news")).to_have_text("orders[0] is paused")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(f"http://127.0.0.1:{looking.ask.port}/")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_person_who_may_only_read_has_no_buttons_that_act(browser: Browser) -> None:
    reader = AccessToken(token=TOKEN, role=AccessRole.READ)
    admin = AdminConfig(listen="127.0.0.1:0", tokens={"support": reader})
    with serving(Shop.with_a_blocked_record(), admin, Path()) as port:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Log out")).to_have_attribute(
            "title", "support, role read"
        )
        page.locator(".strip canvas").press("Enter")
        expect(page.locator("#details-title")).to_contain_text("offsets")
        for acts in ("Pause", "Skip", "Dead letter"):
            expect(page.get_by_role("button", name=acts)).to_have_count(0)
        page.close()


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


def test_64_windows_of_64_cells_are_drawn_in_less_time_than_lies_between_updates(
    look: Look,
) -> None:
    # Processor time. That no frame is missed, the benchmark live-window measures.
    looking = look(Shop.busy(64, 64))
    page = looking.page
    expect(page.locator(".windows canvas")).to_have_count(64)
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})
    before, busy_s = page.evaluate("({...wcCounts})"), _busy_s(client)
    wanted = before["frames"] + FRAMES
    page.wait_for_function("frames => wcCounts.frames >= frames", arg=wanted, timeout=60_000)
    spent_s, after = _busy_s(client) - busy_s, page.evaluate("wcCounts")
    drawn = after["drawn"] - before["drawn"]
    assert 0 < spent_s / drawn < FRAME_S


def _busy_s(client: CDPSession) -> float:
    """Return the processor time that the main thread of a page has had for its tasks."""
    metrics = client.send("Performance.getMetrics")["metrics"]
    (busy_s,) = (each["value"] for each in metrics if each["name"] == "TaskDuration")
    return float(busy_s)
