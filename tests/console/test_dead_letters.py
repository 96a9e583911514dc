"""Dead letters on the page: counted, listed, shown, put back and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, expect

from tests.admin.admin import Answered, Asking
from tests.cli.dead_letters import DLQ, fill, headers_of, letter
from tests.commands import DEADLINE_S, kafka_of
from tests.conftest import MakeTopic
from tests.console.configs import console, context
from tests.logged import lines_of
from tests.model.test_dead_letter import SPRING
from window_consumer.admin.tokens import AccessRole, AccessToken
from window_consumer.dlq.page import DeadLetterPages
from window_consumer.dlq.page_answers import DeadLetterAnswers
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

ENTRY, STATE = "shop-charge.orders.retry.now", "shop-charge.dlq.state"
EVIL = "<img src=x onerror='window.ran = 1'>"
READER, OPERATOR = "r" * 16, "o" * 16
TOKENS = {
    "support": AccessToken(token=READER, role=AccessRole.READ),
    "ops": AccessToken(token=OPERATOR, role=AccessRole.OPERATE),
}


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    """Four dead letters of a worker, and one of Spring in a topic of its own."""
    for name in ("orders", ENTRY, STATE):
        embedded.create_topic(name, 1)
    fill(
        embedded,
        letter(1),
        letter(2, b'{"iban": "DE4711"}', error_message="no DE4711"),
        letter(3, reason="FATAL", error_class=EVIL, error_fingerprint="feed", error_message=EVIL),
        NewRecord(b"not ours"),
    )
    fill(embedded, NewRecord(b"1", b"k", SPRING), topic="orders-dlt")
    embedded.create_topic("billing.invoices.dlq", 1)
    return embedded


@pytest.fixture
def serve(broker: EmbeddedBroker, tmp_path: Path) -> Callable[..., Any]:
    def serve(*, values: bool = False, **admin: Any) -> Any:
        worker = {"topics": ["orders"], "group": "shop-charge"}
        mask = [{"topics": ["orders"], "fields": ["iban"]}]
        config = {"kafka": kafka_of(broker), "workers": {"charge": worker}, "mask": mask}
        of = context(tmp_path, config)
        pages = DeadLetterPages(of, DeadLetterAnswers(of, values=values))
        return console({"dlq": pages}, **admin)

    return serve


@pytest.fixture
def ask(serve: Callable[..., Any]) -> Iterator[Asking]:
    with serve() as ask:
        yield ask


def post(ask: Asking, path: str, token: str = "", **fields: Any) -> Answered:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return ask(f"/api/dead-letters/{path}", "POST", json.dumps(fields), **headers)


def ended(ask: Asking, number: int, token: str = "") -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    until = monotonic() + DEADLINE_S
    while monotonic() < until:
        jobs = ask("/api/dead-letters/jobs", **headers).json["jobs"]
        (job,) = (each for each in jobs if each["number"] == number)
        if job["state"] != "running":
            found: dict[str, Any] = job
            return found
        sleep(0.05)
    raise AssertionError("the job does not end")


def test_they_are_counted_by_cause_and_the_latest_are_listed_without_values(ask: Asking) -> None:
    found = ask("/api/dead-letters").json
    counts = found["topics"][DLQ]
    assert (counts["worker"], counts["total"], counts["open"]) == ("charge", 4, 4)
    assert counts["reasons"] == {"RETRIES_EXHAUSTED": 2, "FATAL": 1, "unknown": 1}
    assert "orders-dlt" not in found["topics"]
    assert found["others"] == ["billing.invoices.dlq", "orders-dlt"]
    assert {each["dead_letter"] for each in found["letters"]} == {f"{DLQ}/0/{n}" for n in range(4)}
    assert "DE4711" not in str(found)
    fits = ask("/api/dead-letters?where=reason%20%3D%3D%20%27FATAL%27").json
    assert [each["id"] for each in fits["letters"]] == ["orders/0/3"]
    theirs = ask("/api/dead-letters?topic=orders-dlt").json
    assert theirs["letters"][0]["written_by"] == "spring"
    assert theirs["topics"]["orders-dlt"]["worker"] is None


@pytest.mark.parametrize(
    "query", ["where=reason%20%3D%3D%20%27FATL%27", "where=%28", "topic=nothing", "topic="]
)
def test_a_mistake_in_a_question_is_answered_with_what_is_wrong(ask: Asking, query: str) -> None:
    answer = ask(f"/api/dead-letters?{query}")
    assert answer.status == 400
    assert answer.json["error"]


def test_one_is_shown_masked_and_its_value_only_where_that_is_allowed(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "window_consumer")
    with serve(tokens=TOKENS) as ask:
        view = post(ask, "letter", READER, name="orders/0/2").json
        assert post(ask, "letter", READER, name="orders/0/99").status == 400
        assert post(ask, "letter", READER).status == 400
    assert (view["id"], view["value"]["form"], view["resolved"]) == ("orders/0/2", "hidden", None)
    assert view["error_message"] == "no ***"
    (line,) = lines_of(caplog, LogEvent.DLQ_LETTER_SHOWN)
    assert (vars(line)["user"], vars(line)["dead_letter"]) == ("support", f"{DLQ}/0/1")
    with serve(values=True) as ask:
        assert post(ask, "letter", name=f"{DLQ}/0/1").json["value"]["json"] == {"iban": "***"}


def test_a_redrive_is_tried_first_and_confirmed_once(
    serve: Callable[..., Any], broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(tokens=TOKENS) as ask:
        where = {"topics": [DLQ], "where": "reason == 'RETRIES_EXHAUSTED'"}
        assert post(ask, "redrive", READER, **where).status == 403
        started = post(ask, "redrive", OPERATOR, **where)
        assert (started.status, started.json["dry_run"]) == (202, True)
        tried = ended(ask, started.json["number"], OPERATOR)
        (part,) = tried["parts"]
        assert (part["redriven"], part["not_matching"], part["to"]) == (2, 2, ENTRY)
        assert broker.read_all(ENTRY) == []
        assert post(ask, f"jobs/{tried['number']}/confirm", READER).status == 403
        real = post(ask, f"jobs/{tried['number']}/confirm", OPERATOR).json
        assert ended(ask, real["number"], OPERATOR)["parts"][0]["redriven"] == 2
        assert post(ask, f"jobs/{tried['number']}/confirm", OPERATOR).status == 400
        assert post(ask, f"jobs/{real['number']}/confirm", OPERATOR).status == 400
        shown = {"authorization": f"Bearer {OPERATOR}"}
        assert ask("/api/dead-letters", **shown).json["topics"][DLQ]["resolved"] == 2
    assert len(broker.read_all(ENTRY)) == 2
    lines = lines_of(caplog, LogEvent.DLQ_JOB_STARTED, user="ops", what="redrive")
    assert [vars(each)["dry_run"] for each in lines] == [True, False]


def test_a_redrive_is_stopped_between_two_records(ask: Asking, broker: EmbeddedBroker) -> None:
    tried = ended(ask, post(ask, "redrive", topics=[DLQ], rate=0.2).json["number"])
    number = post(ask, f"jobs/{tried['number']}/confirm").json["number"]
    assert post(ask, "redrive", topics=[DLQ]).status == 400  # one at a time
    while not broker.read_all(ENTRY):
        sleep(0.05)
    assert post(ask, f"jobs/{number}/stop").status == 202
    assert ended(ask, number)["state"] == "stopped"
    assert len(broker.read_all(ENTRY)) < 4


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("redrive", {"topics": ["orders-dlt"], "where": "resaon == 1"}),
        ("redrive", {"topics": [DLQ], "rate": -1}),
        ("redrive", {"topics": [DLQ], "max_redrives": 0.5}),
        ("redrive", {"topics": DLQ}),
        ("purge", {"topics": [DLQ], "before": "soon"}),
        ("purge", {"topics": [], "before": "1d"}),
        ("purge", {"topics": [DLQ], "before": "3", "partition": "0"}),
        ("purge", {"topics": [DLQ], "before": "3", "where": "reason == 'FATAL'"}),
        ("jobs/7/confirm", {}),
        ("jobs/7/stop", {}),
    ],
)
def test_what_cannot_be_done_is_refused_before_it_begins(
    ask: Asking, path: str, fields: dict[str, Any]
) -> None:
    answer = post(ask, path, **fields)
    assert (answer.status, bool(answer.json["error"])) == (400, True)
    assert ask("/api/dead-letters/jobs").json["jobs"] == []


@pytest.mark.parametrize("body", ["[]", '{"topics": ["orders-dlt"', '{"where": "' + "x" * 100_000])
def test_a_body_that_cannot_be_read_is_no_redrive_of_all_topics(ask: Asking, body: str) -> None:
    assert ask("/api/dead-letters/redrive", "POST", body).status == 400
    assert ask("/api/dead-letters/jobs").json["jobs"] == []


def test_a_topic_without_known_dead_letters_is_not_emptied(
    ask: Asking, broker: EmbeddedBroker
) -> None:
    fill(broker, NewRecord(b"precious"), topic="precious")
    job = ended(ask, post(ask, "purge", topics=["precious"], before="1").json["number"])
    assert (job["state"], bool(job["error"]), job["parts"]) == ("failed", True, [])
    assert post(ask, f"jobs/{job['number']}/confirm").status == 400


def test_a_purge_says_what_would_be_deleted(ask: Asking) -> None:
    job = ended(ask, post(ask, "purge", topics=[DLQ], before="3").json["number"])
    assert job["state"] == "done"
    (part,) = job["parts"]
    assert (part["first"], part["before"], part["left"]) == (0, 3, 1)


def test_a_confirmed_purge_deletes_what_was_tried_and_nothing_that_came_since(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    orders, group = make_topic("orders"), unique_name("shop")
    dead = make_topic("letters")
    settings = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer({**settings, "log_level": 0})

    def die(*offsets: int) -> None:
        for offset in offsets:
            producer.produce(dead, b"x", headers=list(headers_of(offset)))
        assert producer.flush(60) == 0

    die(1, 2)
    workers = {"charge": {"topics": [orders], "group": group}}
    of = context(tmp_path, {"kafka": settings, "workers": workers})
    pages = DeadLetterPages(of, DeadLetterAnswers(of, values=False))
    with console({"dlq": pages}) as ask:
        tried = ended(ask, post(ask, "purge", topics=[dead], before="2099-01-01").json["number"])
        assert (tried["parts"][0]["before"], tried["error"]) == (2, None)
        die(3)
        real = post(ask, f"jobs/{tried['number']}/confirm").json
        assert ended(ask, real["number"])["state"] == "done"
        left = ask(f"/api/dead-letters?topic={dead}").json["letters"]
    assert [each["id"] for each in left] == ["orders/0/3"]


def test_somebody_finds_a_cause_looks_at_one_and_puts_it_back_with_the_keyboard(
    serve: Callable[..., Any], browser: Browser, broker: EmbeddedBroker
) -> None:
    with serve() as ask:
        page = browser.new_page(color_scheme="dark", viewport={"width": 320, "height": 640})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: complaints.extend(_elsewhere(request.url, ask.port)))
        page.goto(f"http://127.0.0.1:{ask.port}/")
        page.get_by_role("button", name=EVIL, exact=True).press("Enter")
        expect(page.locator("#where")).to_have_value("fingerprint == 'feed'")
        expect(page.locator("#found td.error")).to_have_text([f"{EVIL}: {EVIL}"])
        page.get_by_role("button", name="orders/0/3").last.press("Enter")
        expect(page.locator("#letter-body")).to_contain_text("charge")
        expect(page.locator("#letter-body")).to_contain_text(EVIL)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        page.keyboard.press("Escape")
        page.get_by_text("Put back or delete").click()
        page.get_by_role("button", name="Try a redrive").press("Enter")
        page.get_by_role("button", name="Put 1 back").press("Enter")
        expect(page.locator("#jobs h2")).to_have_text(
            [f"A redrive of {DLQ}", f"Dry run of a redrive of {DLQ}"]
        )
        expect(page.locator("#jobs .chip").first).to_have_text("done")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.evaluate("window.ran") is None
        page.close()
    assert complaints == []
    assert len(broker.read_all(ENTRY)) == 1


def _elsewhere(url: str, port: int) -> list[str]:
    return [] if url.startswith((f"http://127.0.0.1:{port}/", "data:")) else [url]
