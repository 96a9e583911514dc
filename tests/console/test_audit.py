"""The audit's report on the page, made by the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.admin import Answered, Asking
from tests.commands import DEADLINE_S
from tests.console.configs import console, context
from window_consumer.admin.tokens import AccessRole, AccessToken
from window_consumer.audit.feature import AuditFeature
from window_consumer.audit.page import AuditPages
from window_consumer.audit.page_reports import MOST_BUCKETS, PageReports, summary
from window_consumer.audit.states import TERMS

EVIL = "<img src=x onerror='window.ran = 1'>"
NOON = "2026-01-31T12:00:00Z"


def bucket(minute: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a line of ``audit report --json``."""
    start_ms = 1_769_860_800_000 + 60_000 * minute
    place = {"what": "bucket", "bucket": NOON, "bucket_ms": start_ms, "topic": "orders"}
    found = {"group": "shop", "state": "final", "finding": "balanced", "was_reopened": False}
    return {**place, **found, **dict.fromkeys(TERMS, 0), "produced": 10, "finished": 10, **fields}


LOST = bucket(1, finding="lost", lost=2, finished=8, group=EVIL)
LATENCY = {"what": "latency", "topic": "orders", "group": "shop", "host": None, "count": 10}
LATENCY |= {"p50_ms": 12, "p95_ms": 40, "p99_ms": 90}
REPORT = {"what": "report", "since": NOON, "at": NOON, "reaches": None, "quarantined": 0}
EXPLANATION = {"what": "explanation", "topic": "orders", "partition": 3, "group": EVIL, "came": 10}
EXPLANATION |= {"left": 8, "missing": [[17, 19]], "counted": None, "unknown_ids": [EVIL]}

SCRIPT = """
import json, sys
given = sys.argv[1:]
print("asked", given, file=sys.stderr)
explains = any(each.startswith("--explain=") for each in given)
for line in json.loads(open({file!r}).read())[explains]:
    print(json.dumps(line))
sys.exit({code})
"""


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """Serve the page with a command that is made up."""

    def serve(code: int = 3, **admin: Any) -> Any:
        file, script = tmp_path / "lines.json", tmp_path / "report.py"
        file.write_text(json.dumps([[bucket(), LOST, LATENCY, REPORT], [EXPLANATION]]))
        script.write_text(SCRIPT.format(file=str(file), code=code))
        reports = PageReports(tmp_path / "pipeline.yaml", [sys.executable, str(script)])
        return console({"audit": AuditPages(reports)}, **admin)

    return serve


def post(ask: Asking, token: str = "", **fields: Any) -> Answered:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return ask("/api/audit/reports", "POST", json.dumps(fields), **headers)


def ended(ask: Asking, number: int, token: str = "") -> dict[str, Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    until = monotonic() + DEADLINE_S
    while monotonic() < until:
        report: dict[str, Any] = ask(f"/api/audit/reports/{number}", **headers).json
        if report["state"] != "running":
            return report
        sleep(0.05)
    raise AssertionError("the report does not end")


def test_totals_and_notable_buckets_are_what_a_page_gets() -> None:
    lines = [bucket(), bucket(state="open"), LOST, LATENCY, REPORT]
    lines += [bucket(2 + each, finding="duplicated") for each in range(MOST_BUCKETS)]
    found = summary(lines)
    evil, shop = found["places"]
    assert (evil["group"], evil["totals"]["lost"], evil["findings"]) == (EVIL, 2, {"lost": 1})
    assert shop["states"] == {"final": MOST_BUCKETS + 1, "open": 1}
    assert shop["totals"]["produced"] == 10 * (MOST_BUCKETS + 2)
    assert (found["buckets"][0], found["more_buckets"]) == (LOST, 1)
    assert len(found["buckets"]) == MOST_BUCKETS
    assert (found["reaches"], len(found["latencies"])) == (None, 1)


def test_a_report_runs_beside_the_page_with_what_was_asked(serve: Callable[..., Any]) -> None:
    with serve() as ask:
        started = post(ask, since="6h", topics=["orders"], groups=["a b"], refresh=True)
        assert started.status == 202
        report = ended(ask, started.json["number"])
        assert report["state"] == "done"
        options = ["--since=6h", "--topic=orders", "--group=a b"]
        assert all(f"'{each}'" in report["notes"] for each in options)
        assert "--no-refresh" not in report["notes"]
        explained = ended(ask, post(ask, bucket=NOON).json["number"])
        assert f"'--no-refresh', '--explain={NOON}'" in explained["notes"]
        assert explained["result"]["partitions"] == [EXPLANATION]
        assert ask("/api/audit/reports/99").status == 404


@pytest.mark.parametrize(
    "fields",
    [{"since": "soon"}, {"topics": "orders"}, {"groups": [7]}, {"bucket": ""}, {"since": "a\n"}],
)
def test_a_mistake_is_refused_before_anything_starts(
    serve: Callable[..., Any], fields: dict[str, Any]
) -> None:
    with serve() as ask:
        answer = post(ask, **fields)
        assert (answer.status, bool(answer.json["error"])) == (400, True)
        assert ask("/api/audit/reports/1").status == 404


def test_a_reader_sees_reports_but_changes_no_table(serve: Callable[..., Any]) -> None:
    tokens = {"support": AccessToken(token="r" * 16, role=AccessRole.READ)}
    with serve(tokens=tokens) as ask:
        assert post(ask, "r" * 16, refresh=True).status == 403
        assert ended(ask, post(ask, "r" * 16).json["number"], "r" * 16)["state"] == "done"


def test_a_report_that_fails_says_why(serve: Callable[..., Any]) -> None:
    with serve(code=2) as ask:
        report = ended(ask, post(ask).json["number"])
    assert (report["state"], report["result"], bool(report["notes"])) == ("failed", None, True)


def test_the_command_takes_the_options_and_its_reason_reaches_the_page(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    pipeline = json.dumps({"kafka": kafka, "directory": str(tmp_path / "lake")})
    (tmp_path / "pipeline.yaml").write_text(pipeline)
    config = {"kafka": kafka, "admin": {"pipeline": "pipeline.yaml"}}
    pages = AuditFeature().pages(context(tmp_path, config))
    assert pages is not None
    no_pipeline = {"kafka": kafka, "workers": {"charge": {"topics": ["orders"], "group": "shop"}}}
    assert AuditFeature().pages(context(tmp_path, no_pipeline)) is None
    with console({"audit": pages}) as ask:
        report = ended(ask, post(ask, topics=["orders"], groups=["shop"]).json["number"])
    assert report["state"] == "failed"
    assert str(tmp_path / "lake") in report["notes"]


def test_a_loss_is_seen_and_explained_with_the_keyboard(
    serve: Callable[..., Any], browser: Browser
) -> None:
    with serve() as ask:
        page = browser.new_page(color_scheme="dark", viewport={"width": 320, "height": 640})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(f"http://127.0.0.1:{ask.port}/")
        page.get_by_label("In the last").press("Enter")
        expect(page.locator("#report h2").first).to_have_text(f"orders, {EVIL}")
        expect(page.locator("#report .chip")).to_have_text(["lost", "nothing lost"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        page.get_by_role("button", name="Explain").press("Enter")
        expect(page.locator("#explained h2")).to_be_focused()
        offsets = page.locator("#explained a").first
        expect(offsets).to_have_text("17 to 18")
        expect(offsets).to_have_attribute("href", "trace?at=orders%2F3%2F17")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.evaluate("window.ran") is None
        page.close()
    assert complaints == []
