"""The page of a record's journey: who may see it, what it asks, and what it shows in Chromium."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.admin import TOKEN, asking
from tests.golden_texts import Golden
from tests.model.test_journey import event, sent, story
from tests.pipeline.test_search import write
from window_consumer.config.sections.mask import MaskRule, MaskRules
from window_consumer.model.errors import UsageError
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.journey_view import JourneyPages
from window_consumer.trace.page import Trace, TracePages
from window_consumer.trace.query import TraceQuery

EVIL = "<img src=x onerror='window.ran = 1'>"


class MadeUpTrace:
    """A trace of which a test says what it knows."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def journey(self, record: str) -> dict[str, Any]:
        self.asked.append(record)
        if record == "trouble":
            raise UsageError("the password of the store is wrong")
        return {"passages": [], "notes": [EVIL]}

    def search(self, question: TraceQuery) -> dict[str, Any]:
        self.asked.append(f"key {question.key}")
        return {"records": [], "notes": []}


def page_of(trace: Trace | None) -> dict[str, TracePages]:
    return {"trace": TracePages(trace)}


def pages(directory: Path, events: list[TraceEvent], *rules: MaskRule) -> JourneyPages:
    """Return what answers from a table of these events, with Kafka away."""
    write(directory / "tables" / "trace", events)
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    text = json.dumps({"kafka": kafka, "directory": "."})
    (directory / "pipeline.yaml").write_text(text)
    return JourneyPages.of_config(directory / "pipeline.yaml", MaskRules(rules))


def test_without_a_pipeline_there_is_no_page() -> None:
    with asking(pages=page_of(None)) as ask:
        for path in ("/trace", "/api/trace?key=a", "/api/trace/orders/0/17"):
            answer = ask(path)
            assert answer.status == 404
            assert "admin: {pipeline: pipeline.yaml}" in answer.json["error"]
        assert ask("/api/session").json["trace"] is False


def test_it_is_behind_the_token_as_the_other_pages_are() -> None:
    trace = MadeUpTrace()
    with asking(token=TOKEN, pages=page_of(trace)) as ask:
        for path in ("/api/trace/a", "/api/trace?key=a"):
            assert ask(path).status == 401
        for path, login in (("/trace", "login"), ("/trace/orders/0/17", "../../../login")):
            answer = ask(path)
            assert (answer.status, answer.headers["location"]) == (303, login)
        assert ask("/api/trace/a", Sec_Fetch_Site="cross-site").status == 403
        assert trace.asked == []
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert ask("/api/trace/orders/0/17", **shown).status == 200
        assert ask("/trace", **shown).status == 200
    assert trace.asked == ["orders/0/17"]


def test_ids_with_slashes_and_signs_are_asked_for_as_they_are() -> None:
    trace = MadeUpTrace()
    with asking(pages=page_of(trace)) as ask:
        for path in ("/api/trace/orders/0/17", "/api/trace/orders%2F0%2F17", "/api/trace/a%20%3Fb"):
            assert ask(path).status == 200
        assert ask("/api/trace?key=a%26b").status == 200
        moved = ask("/trace/orders/0/17").headers["location"]
        assert moved == "../../../trace?record=orders%2F0%2F17"
        assert ask("/api/trace?key=").status == 400
        assert ask(f"/api/trace/{'x' * 1001}").status == 400
    assert trace.asked == ["orders/0/17", "orders/0/17", "a ?b", "key a&b"]


def test_a_question_is_read_as_the_command_reads_its_options() -> None:
    given = {"key": "k", "at": "orders/0/17", "tag": "eu", "group": "", "step": "failed"}
    found = TraceQuery.of_texts({**given, "since": "2h", "to": "2026-01-31T12:00"}, 7_300_000_000)
    assert found == TraceQuery(
        key="k",
        topic="orders",
        partition=0,
        offset=17,
        tag="eu",
        step="failed",
        since_us=100_000_000,
        until_us=1_769_860_800_000_000,
    )
    assert TraceQuery.of_texts({"at": "orders"}, 0) == TraceQuery(topic="orders")


@pytest.mark.parametrize(
    "query",
    [
        *("at=orders/0/", "step=fialed", "since=2", "from=soon", "since=2h&from=2026-01-31"),
        *("from=2026-01-31&to=2026-01-31", "stpe=failed", "tag=", f"tag={'x' * 1001}", ""),
    ],
)
def test_a_mistake_in_a_question_is_refused_before_the_table_is_asked(query: str) -> None:
    trace = MadeUpTrace()
    with asking(pages=page_of(trace)) as ask:
        answer = ask(f"/api/trace?{query}")
    assert (answer.status, bool(answer.json["error"]), trace.asked) == (400, True, [])


def test_records_are_found_by_tag_status_time_and_place(tmp_path: Path) -> None:
    spent = event("failed", 70, "g.orders.retry.now", 2, attempt=4, status="RETRIES_EXHAUSTED")
    names: Any = {"record_id": "id-2", "root_id": "id-2", "tags": "eu,vip"}
    answers = pages(tmp_path, [*story(), spent, event("received", 1, event_id="t", **names)])

    def found(**texts: str) -> list[tuple[str, str]]:
        records = answers.search(TraceQuery.of_texts(texts, 0))["records"]
        return [(each["record"], each["step"]) for each in records]

    assert found(tag="vip") == [("id-2", "received")]
    assert found(tag="vi") == []
    assert found(status="RETRIES_EXHAUSTED", step="failed") == [("orders/0/17", "failed")]
    assert {name for name, _ in found(at="orders")} == {"orders/0/17", "id-2"}
    assert found(to="1970-01-02") == []


def test_trouble_is_reported_in_the_log_and_not_to_whoever_looks() -> None:
    with asking(pages=page_of(MadeUpTrace())) as ask:
        answer = ask("/api/trace/trouble")
    assert answer.status == 503
    assert "password" not in answer.text


def test_keys_are_masked_as_everywhere(tmp_path: Path) -> None:
    hidden = MaskRule(topics=("orders",), whole=("key",))
    reported = pages(tmp_path, story(), hidden).journey("orders/0/17")
    assert reported["passages"][0]["key"] == "***"
    assert pages(tmp_path, story()).journey("orders/0/17")["passages"][0]["key"] == "k"


def test_a_record_with_an_id_is_found_by_its_place(tmp_path: Path, golden: Golden) -> None:
    made: Any = ({"record_id": name, "root_id": name} for name in ("id-1", "id-2"))
    one, two = made
    named = [sent(1, **one), event("received", 2, **one)]
    other = event("received", 3, "g.orders.retry.1s", 17, event_id="other", **two)
    found = pages(tmp_path, [*named, other]).journey("orders/0/17")
    assert [each["record"] for each in found["passages"]] == ["id-1"]
    golden(found["notes"][0].partition(": topic")[0])


def test_the_page_shows_the_way_of_a_record_and_runs_nothing_of_it(
    browser: Browser, tmp_path: Path, golden: Golden
) -> None:
    bad = event("failed", 70, "g.orders.retry.now", 2, attempt=4, error_class=EVIL, status=EVIL)
    early = event("received", -5000, "g.orders.retry.1s", 1, event_id="early")
    answers = pages(tmp_path, [*story(), bad, early])
    with asking(pages=page_of(answers)) as ask:
        page = browser.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(f"http://127.0.0.1:{ask.port}/")
        page.get_by_role("link", name="Journeys of records").click()
        page.get_by_label("Id, position or key").fill("orders/0/17")
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator(".passage h2").first).to_have_text("orders/0/17")
        expect(page.locator(".passage h2").nth(1)).to_have_text("then bill")
        way = page.locator(".way", has_text="group g")
        expect(way.locator(".at")).to_have_text(
            ["orders[0]@17", "g.orders.retry.1s[0]@1", "g.orders.retry.now[0]@2"]
        )
        expect(way.locator(".chip")).to_have_text("processed")
        expect(way.locator(".stop.bad")).to_contain_text("dead_lettered")
        expect(way.locator(".skew")).not_to_have_count(0)
        expect(way.locator(".error")).to_contain_text(EVIL)
        golden(page.locator(".note").inner_text().partition(": topic")[0])
        page.set_viewport_size({"width": 320, "height": 640})
        page.get_by_text("Search by topic, time, tag").press("Enter")
        page.get_by_label("Topic or place").fill("orders/0")
        page.get_by_label("Step", exact=True).select_option("received")
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Search", exact=True).press("Enter")
        expect(page).to_have_url(f"http://127.0.0.1:{ask.port}/trace?at=orders%2F0&step=received")
        expect(page.locator(".found a")).to_have_text(["orders/0/17"])
        expect(page.get_by_label("Topic or place")).to_have_value("orders/0")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        page.goto(f"http://127.0.0.1:{ask.port}/trace?key=k")
        expect(page.locator(".found a")).to_have_text(["orders/0/17"])
        page.locator(".found a").click()
        expect(page.locator(".summary")).to_contain_text("steps")
        page.goto(f"http://127.0.0.1:{ask.port}/trace/nobody/0/1")
        expect(page.locator(".empty")).to_contain_text("nobody/0/1")
        golden(page.locator(".empty").inner_text())
        assert page.evaluate("window.ran") is None
        page.close()
    assert complaints == []
