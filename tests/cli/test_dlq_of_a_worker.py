"""What a worker gives up, looked at the way that its user would."""

from __future__ import annotations

from tests.cli.dead_letters import DLQ, SHOP
from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent


def test_what_a_worker_gives_up_is_counted_shown_and_becomes_a_test(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    embedded.create_topic(DLQ, 1)
    worker = {"group": "shop-charge", "topics": ["orders"], "retry": {"attempts": 1}}
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": worker}})
    commands.application(SHOP)
    embedded.produce("orders", b'{"amount": 5}')
    embedded.produce("orders", b'{"amount": 0}', key=b"c9", headers=[("tenant", b"eu")])
    running = commands.start("run", "shop:app")
    running.wait_for_event(LogEvent.CALL_FAILED)
    assert running.stop().code == 0

    counted = commands.run("dlq", "list", "--json").json["topics"][DLQ]
    assert (counted["open"], counted["reasons"]) == (1, {"RETRIES_EXHAUSTED": 1})
    assert (counted["classes"], counted["versions"]) == ({"ValueError": 1}, {"7": 1})
    assert counted["ages"]["under 1h"] == 1
    ((fingerprint, kind),) = counted["fingerprints"].items()

    shown = commands.run("dlq", "show", kind["latest"], "--json").json
    assert (shown["id"], shown["fingerprint"]) == ("orders/0/1", fingerprint)
    assert shown["error_message"] == "no amount: b'c9'"
    assert "in charge" in shown["error_stack"]
    assert shown["value"]["json"] == {"amount": 0}

    test = commands.run("dlq", "show", "orders/0/1", "--as-test", "--app", "shop:app").out
    assert "key=b'c9'" in test
    assert "('tenant', b'eu')" in test
    assert "wc-" not in test
    where = f"fingerprint == '{fingerprint}' and header('tenant') == 'eu' and key == 'c9'"
    (line,) = commands.run("dlq", "export", "--where", where).out.splitlines()
    assert '"id":"orders/0/1"' in line
