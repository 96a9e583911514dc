from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, effective_kafka

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def test_nested_kafka_properties_are_refused_with_the_dotted_form(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    message = refused(worker_text(kafka=["sasl:", "  password: hunter2"]))
    golden(message)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("a: [b, c]", "kafka.a: expected text, a number, true or false"),
        ("a:", "kafka.a: has no value"),
        (
            "consumer: 5",
            "kafka.consumer: expected a mapping with the properties that only the cons",
        ),
        ("consumer: {producer: {a: b}}", "kafka.consumer.producer: properties are not nested"),
    ],
)
def test_kafka_properties_are_scalars(
    refused: Refuse, worker_text: WorkerText, line: str, wrong: str
) -> None:
    assert refused(worker_text(kafka=[line])).startswith(f"workers.yaml:3: {wrong}")


@pytest.mark.parametrize("value", ["0123", "0x10", "1_000", "22:22", "1.50", "+5", ".5"])
def test_a_number_that_yaml_would_change_is_refused_in_kafka_properties(
    refused: Refuse, worker_text: WorkerText, value: str, golden: Golden
) -> None:
    message = refused(worker_text(kafka=[f"sasl.username: {value}"]))
    golden(message)


def test_kafka_properties_keep_their_types(loaded: Load, worker_text: WorkerText) -> None:
    kafka = loaded(
        worker_text(kafka=["i: 5", "f: 0.5", "b: false", "s: '5'", "yes: no"])
    ).config.kafka.common
    assert (kafka["i"], kafka["f"], kafka["b"], kafka["s"]) == (5, 0.5, False, "5")
    assert kafka["yes"] is False


def test_kafka_properties_of_worker_and_client_win_over_general_ones(loaded: Load) -> None:
    config = loaded(
        "kafka: {a: top, b: top, c: top, d: top, consumer: {b: topc, c: topc, d: topc}}\n"
        "workers:\n"
        "  w: {topics: [t], group: g, kafka: {c: own, d: own, consumer: {d: ownc}}}\n"
    ).config
    worker = config.workers["w"]
    assert effective_kafka(config, worker, "consumer") == {
        "a": "top",
        "b": "topc",
        "c": "own",
        "d": "ownc",
    }
    assert effective_kafka(config, worker, "producer") == {
        "a": "top",
        "b": "top",
        "c": "own",
        "d": "own",
    }


def test_common_properties_reach_only_clients_that_know_them(loaded: Load) -> None:
    config = loaded(
        "kafka: {both: 1, fetch: 1, linger: 1}\n"
        "workers: {w: {topics: [t], group: g, kafka: {fetch: 2, linger: 2, "
        "producer: {fetch: 3}, admin: {linger: 3}}}}\n"
    ).config
    worker = config.workers["w"]
    only = {"consumer_only": frozenset({"fetch"}), "producer_only": frozenset({"linger"})}
    assert effective_kafka(config, worker, "consumer", **only) == {"both": 1, "fetch": 2}
    assert effective_kafka(config, worker, "producer", **only) == {
        "both": 1,
        "linger": 2,
        "fetch": 3,
    }
    assert effective_kafka(config, worker, "admin", **only) == {"both": 1, "linger": 3}
