"""Workers of one file on two clusters: each reads, writes and commits on its own."""

from __future__ import annotations

from tests.commands import Commands
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """
from window_consumer import App, Fatal, Produce, Record

app = App("shop")


@app.handler("orders", group="shop-near")
def near(order: Record) -> Produce:
    print("near", order.text(), flush=True)
    return Produce("charged", order.key, order.value)


@app.handler("orders", group="shop-far")
def far(order: Record) -> None:
    print("far", order.text(), flush=True)
    raise Fatal
"""


def test_a_worker_with_kafka_of_its_own_reads_and_writes_there(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    commands.application(SHOP)
    with EmbeddedBroker(topics={"orders": 1}) as other:
        far = {"kafka": {"bootstrap.servers": other.bootstrap}, "retry": {"attempts": 1}}
        near = {"bootstrap.servers": embedded.bootstrap}
        commands.configure({"kafka": near, "workers": {"near": {}, "far": far}})
        for topic in ("orders", "charged"):
            embedded.create_topic(topic, 1)
        embedded.produce("orders", b"1")
        other.produce("orders", b"2")
        running = commands.start("run", "shop:app")
        running.wait_for("near 1")
        running.wait_for("far 2")
        ended = running.stop()
        assert ended.code == 0, ended.said
        assert [each.value() for each in embedded.read_all("charged")] == [b"1"]
        assert [each.value() for each in other.read_all("shop-far.orders.dlq")] == [b"2"]
        listed = commands.run("dlq", "list", "--app", "shop:app", "--worker", "far", "--json").json[
            "topics"
        ]
        assert listed["shop-far.orders.dlq"]["total"] == 1
