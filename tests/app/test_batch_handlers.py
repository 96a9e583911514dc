"""Batch handlers as they are decorated, and on a broker with real threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.golden_texts import Golden
from tests.waiting import wait_until
from window_consumer import App, PartialFailure, Record, UsageError
from window_consumer.kafka.embedded import EmbeddedBroker


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: None, "takes nothing|takes .nothing"),
        (lambda _a, _b, _c: None, r"takes \(_a, _b, _c\)"),
    ],
)
def test_what_cannot_be_called_with_a_list_is_refused(function: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        App("shop").batch_handler("clicks", name="store")(function)


def test_a_parameter_that_is_no_list_is_refused_with_what_to_write(golden: Golden) -> None:
    def store(click: int) -> None: ...

    function: Any = store  # type checkers refuse it, too
    with golden.raises(UsageError):
        App("shop").batch_handler("clicks")(function)


def test_lists_are_handled_on_a_broker_and_only_those_that_failed_come_back(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("clicks", 2)
    app = App("shop")
    calls: list[tuple[int, list[int]]] = []
    keys: Any = {"retry": {"backoff": "10ms..20ms"}}

    @app.batch_handler("clicks", group="shop", max_records=50, min_records=5, **keys)
    def store(records: list[Record]) -> None:
        calls.append((records[0].attempt, [record.json() for record in records]))
        bad = [record for record in records if record.json() % 10 == 0 and record.attempt == 1]
        if bad:
            raise PartialFailure(failed=bad)

    file = tmp_path / "workers.yaml"
    servers = f"kafka: {{bootstrap.servers: '{embedded.bootstrap}'}}"
    file.write_text(f"{servers}\nworkers: {{store: {{}}}}\n")
    producer = Producer({"bootstrap.servers": embedded.bootstrap})
    for value in range(200):
        producer.produce("clicks", str(value).encode(), partition=value % 2)
    assert producer.flush(30) == 0
    with app.start(file, start_timeout=60) as running:
        wait_until(lambda: running.counters["store"].processed == 200, 60.0, "all are stored")
    first = [value for attempt, values in calls if attempt == 1 for value in values]
    again = [value for attempt, values in calls if attempt == 2 for value in values]
    assert sorted(first) == list(range(200))
    assert sorted(again) == list(range(0, 200, 10))
    assert max(len(values) for _, values in calls) <= 50
    assert all(len({value % 2 for value in values}) == 1 for _, values in calls)
    assert len(calls) < 60
