from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def test_an_override_wins_over_the_file_and_says_where_it_came_from(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(worker_text("concurrency: 4", "memory: 64MiB"), "workers.charge.concurrency=8")
    assert result.config.workers["charge"].concurrency == 8
    key = ("workers", "charge", "concurrency")
    assert result.where(key) == "--set workers.charge.concurrency"
    assert result.where(("workers", "charge", "memory")) == "workers.yaml:8"


def test_of_two_overrides_of_one_key_the_later_wins(loaded: Load, worker_text: WorkerText) -> None:
    key = "workers.charge.retry.attempts"
    result = loaded(worker_text(), f"{key}=8", f"{key}=9")
    assert result.config.workers["charge"].retry.attempts == 9


def test_below_kafka_the_rest_is_one_property(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(
        worker_text(),
        "kafka.bootstrap.servers=h1:1,h2:2",
        "kafka.consumer.fetch.min.bytes=5",
        "workers.charge.kafka.consumer.fetch.wait.max.ms=5",
        "workers.charge.kafka.client.id=x=y",
        "workers.charge.kafka.producerx.y=1",
    )
    top, own = result.config.kafka, result.config.workers["charge"].kafka
    assert top.common == {"bootstrap.servers": "h1:1,h2:2"}
    assert top.consumer == {"fetch.min.bytes": 5}
    assert own.consumer == {"fetch.wait.max.ms": 5}
    assert own.common == {"client.id": "x=y", "producerx.y": 1}


def test_lists_and_mappings_are_written_as_in_yaml(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(
        worker_text("retry: {attempts: 7, backoff: 1s..2s}"),
        "workers.charge.topics=[a, b]",
        "workers.charge.retry={attempts: 9}",
        "kafka.consumer={a.b: 1}",
    )
    worker = result.config.workers["charge"]
    assert worker.topics == ("a", "b")
    assert (worker.retry.attempts, worker.retry.backoff) == (9, (1.0, 2.0))
    assert result.config.kafka.consumer == {"a.b": 1}


@pytest.mark.parametrize("value", ["abc #def", "*x", "!x", "a: b", "0123", "|", "@x", "%x", "é"])
def test_a_value_without_brackets_or_quotes_is_taken_as_it_stands(
    loaded: Load, worker_text: WorkerText, value: str
) -> None:
    result = loaded(worker_text(), f"kafka.sasl.password={value}")
    assert result.config.kafka.common["sasl.password"] == value


def test_an_override_has_the_type_that_its_key_wants(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(
        worker_text(),
        "workers.charge.group=123",
        "workers.charge.stop_timeout=0",
        "topics.create=false",
    )
    worker = result.config.workers["charge"]
    assert (worker.group, worker.stop_timeout) == ("123", 0.0)
    assert result.config.topics.create is False


def test_a_quoted_number_is_text(refused: Refuse, worker_text: WorkerText, golden: Golden) -> None:
    message = refused(worker_text(), 'workers.charge.concurrency="8"')
    golden(message)


def test_variables_are_filled_into_overrides(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(worker_text(), "workers.charge.concurrency=${N}", environ={"N": "3"})
    assert result.config.workers["charge"].concurrency == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("workers.charg.memory=1GiB", "the file has no worker charg; did you mean charge?"),
        ("workers.charge.concurency=1", "unknown key concurency; did you mean concurrency?"),
        ("workers.charge.retry.attempt=1", "unknown key attempt; did you mean attempts?"),
        ("workers.charge.group.x=1", "unknown key group.x; group has no keys below it"),
        ("worker.charge.group=x", "unknown key worker; did you mean workers?"),
        ("stall=5", "unknown key stall; known are kafka, workers, topics"),
        ("workers.charge.name=x", "unknown key name; "),
    ],
)
def test_an_unknown_path_is_refused_and_shown(
    refused: Refuse, worker_text: WorkerText, override: str, message: str
) -> None:
    text = refused(worker_text(), override)
    assert text.startswith(f"--set {override.partition('=')[0]}: {message}")


@pytest.mark.parametrize("override", ["workers.charge.memory", "=5", "a..b=5", "workers.charge.=1"])
def test_a_malformed_override_is_refused_and_shown(
    refused: Refuse, worker_text: WorkerText, override: str, golden: Golden
) -> None:
    message = refused(worker_text(), override)
    assert message.startswith(f"--set {override.partition('=')[0]}")
    golden(message)


def test_bytes_that_are_no_text_give_a_message_that_can_be_printed(
    refused: Refuse, worker_text: WorkerText
) -> None:
    assert refused(worker_text(), "\udcff=5").encode("utf-8").startswith(b"--set \\udcff: unknown")


@pytest.mark.parametrize("value", ["[a", "{a: b", "'a", '"a" b', "[a] b"])
def test_a_value_that_begins_like_yaml_and_is_none_is_refused_without_showing_it(
    refused: Refuse, worker_text: WorkerText, value: str
) -> None:
    message = refused(worker_text(), f"workers.charge.topics={value}")
    assert message.startswith("--set workers.charge.topics: not valid YAML: ")
    assert value not in message


def test_a_wrong_value_within_an_override_is_reported_with_the_override(
    refused: Refuse, worker_text: WorkerText
) -> None:
    message = refused(worker_text(), "workers.charge.retry={attempts: 0}")
    assert message.startswith("--set workers.charge.retry: workers.charge.retry.attempts: 0 is not")
