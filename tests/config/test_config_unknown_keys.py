from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.golden_texts import Golden

Refuse = Callable[..., str]
WorkerText = Callable[..., str]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("concurency", "did you mean concurrency?"),
        ("Topics", "did you mean topics?"),
        ("attempts", "did you mean retry.attempts?"),
        ("cell_records", "did you mean window.cell_records?"),
        ("fetch.min.bytes", "Kafka properties belong below kafka:"),
        ("zzz", "known are enabled, handler, topics"),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_meant(
    refused: Refuse, worker_text: WorkerText, key: str, meant: str
) -> None:
    message = refused(worker_text(f"{key}: 5"))
    assert message.startswith(f"workers.yaml:7: workers.charge.{key}: unknown key; {meant}")


@pytest.mark.parametrize("key", ["deduplicate", "when", "name"])
def test_keys_of_later_features_are_unknown_in_a_worker(
    refused: Refuse, worker_text: WorkerText, key: str
) -> None:
    assert f"workers.charge.{key}: unknown key" in refused(worker_text(f"{key}: {{}}"))


@pytest.mark.parametrize("key", ["telemetry", "rate_per_process"])
def test_keys_of_later_features_are_unknown_at_the_top(
    refused: Refuse, worker_text: WorkerText, key: str
) -> None:
    assert f"workers.yaml:1: {key}: unknown key" in refused(f"{key}: 1\n{worker_text()}")


def test_unknown_keys_are_refused_in_every_section(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    text = worker_text("retry: {attempt: 1}", "window: {cell: 1}")
    message = refused(text + "\ntopics: {dql: x}\n")
    golden(message)
