"""The pages that show a ``Producer``: what they send arrives, with its id."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT, module_of
from window_consumer.kafka.embedded import EmbeddedBroker


def page(name: str) -> ModuleType:
    module = ModuleType("page")
    exec(module_of(ROOT / "docs" / name), module.__dict__)  # noqa: S102 - the page's own example
    return module


def headers_of_the_only_order(broker: EmbeddedBroker) -> dict[str, bytes | None]:
    (record,) = broker.read_all("orders")
    return dict(record.headers() or ())


@pytest.fixture
def broker(embedded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> EmbeddedBroker:
    for topic in ("orders", "wc.trace", "wc.audit"):
        embedded.create_topic(topic, 1)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", embedded.bootstrap)
    return embedded


def test_the_page_of_the_producer_sends(broker: EmbeddedBroker) -> None:
    asyncio.run(page("producer.md").main())
    assert headers_of_the_only_order(broker)["wc-id"]


def test_the_page_of_the_trace_sends_with_tags(broker: EmbeddedBroker) -> None:
    page("trace.md").send(broker.bootstrap)
    headers = headers_of_the_only_order(broker)
    assert headers["wc-tags"] == b"web,eu"
    assert {"wc-id", "wc-sent-at"} <= set(headers)


def test_the_page_of_the_audit_sends_and_counts(broker: EmbeddedBroker, tmp_path: Path) -> None:
    page("audit.md").produce_orders(broker.bootstrap, tmp_path)
    assert headers_of_the_only_order(broker)["wc-id"]
    assert broker.read_all("wc.audit")


def test_the_example_of_the_audits_report_imports_what_it_names() -> None:
    assert callable(page("audit-report.md").lost)
