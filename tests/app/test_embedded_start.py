from __future__ import annotations

from pathlib import Path

from window_consumer import App, Record
from window_consumer.kafka.embedded import EmbeddedBroker


def shop(directory: Path, broker: EmbeddedBroker) -> tuple[App, Path]:
    app = App("shop")

    @app.handler("orders", group="shop-charge")
    def charge(order: Record) -> None:
        raise ValueError(order)

    file = directory / "workers.yaml"
    file.write_text(
        f"kafka: {{bootstrap.servers: '{broker.bootstrap}'}}\n"
        "workers: {charge: {retry: {attempts: 1}}}\n"
    )
    return app, file


def test_a_worker_finds_its_dead_letter_topic_on_a_broker_that_makes_none_on_request(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 2)
    app, file = shop(tmp_path, embedded)
    prepared = app.prepare(app.plan(file), start_timeout=60)
    (worker,) = prepared.workers
    target = worker.ladders["orders"].target(None)
    assert target.topic == "shop-charge.orders.dlq"
    assert embedded.partitions("shop-charge.orders.dlq") == target.partitions


def test_a_dry_look_at_an_embedded_broker_makes_no_dead_letter_topic(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 2)
    app, file = shop(tmp_path, embedded)
    app.prepare(app.plan(file), start_timeout=60, dry=True)
    (worker,) = app.prepare(app.plan(file), start_timeout=60, dry=True).workers
    assert not worker.cluster.topics(["shop-charge.orders.dlq"])


def test_topics_of_telemetry_are_made_on_the_cluster_at_the_top_of_the_file(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 2)
    app, file = shop(tmp_path, embedded)
    with EmbeddedBroker() as other:
        file.write_text(
            f"kafka: {{bootstrap.servers: '{other.bootstrap}'}}\n"
            "workers: {charge: {kafka: {bootstrap.servers: '"
            f"{embedded.bootstrap}'}}}}}}\n"
            "trace: {sample: 1%}\n"
            "audit: {enabled: true, directory: audit}\n"
        )
        running = app.start(file)
        running.stop()
        assert running.wait(60)
        assert other.partitions("wc.trace") == other.partitions("wc.audit") == 4
    plan = app.plan(file)
    (worker,) = app.prepare(plan, start_timeout=60).workers
    assert not worker.cluster.topics(["wc.trace", "wc.audit"])
