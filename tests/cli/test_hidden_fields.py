"""What ``mask`` hides of records is hidden in what their handlers raise, wherever that is told."""

from __future__ import annotations

import json

import pytest

from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    fields = order.json()
    try:
        {}[fields["card"]]
    except KeyError as missing:
        if "iban" in fields:
            raise ValueError(f"iban {fields['iban']!r}, of {fields['name']}") from missing
        raise


@app.batch_handler("orders", group="shop-batches")
def charge_all(orders: list[Record]) -> None:
    raise ValueError(", ".join(order.text() for order in orders))
"""
SECRETS = ("4975123412341234", "DE12345678")


@pytest.mark.parametrize(
    ("worker", "more"),
    [("charge", {}), ("charge", {"pool": "processes"}), ("charge_all", {})],
    ids=["threads", "processes", "batches"],
)
def test_exceptions_tell_no_hidden_field_in_the_log_in_headers_or_in_the_trace(
    worker: str, more: dict[str, object], commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    commands.application(SHOP)
    retry = {"attempts": 1}
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {
                name: {"concurrency": 2, "retry": retry, **(more if name == worker else {})}
                for name in ("charge", "charge_all")
            },
            "mask": [{"topics": ["orders"], "fields": ["card", "iban"]}],
            "trace": {"sample": "100%", "way": "kafka"},
        }
    )
    orders = [{"card": SECRETS[0]}, {"card": SECRETS[0], "iban": SECRETS[1], "name": "anna"}]
    for order in orders:
        embedded.produce("orders", json.dumps(order).encode(), partition=0)
    command = commands.start("run", "shop:app", "--only", worker)
    command.wait_for_event(LogEvent.CALL_FAILED)
    said = command.stop().said
    group = "shop" if worker == "charge" else "shop-batches"
    copies = embedded.read_all(f"{group}.orders.dlq")
    assert len(copies) == len(orders)
    reported = [said, *(str(copy.headers()) for copy in copies)]
    reported += [str(each.value()) for each in embedded.read_all("wc.trace")]
    for secret in SECRETS:
        assert not [each for each in reported if secret in each]
    assert "***" in said
    if worker == "charge":
        assert "iban '***', of anna" in said
