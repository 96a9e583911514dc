"""The key ``concurrency``: a number, auto, or a range for auto."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from window_consumer.config import LoadedConfig
from window_consumer.config.sections.concurrency import AutoConcurrency, concurrency_kind

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


@pytest.mark.parametrize(
    ("text", "expected", "slots"),
    [
        ("8", 8, 8),
        ("auto", AutoConcurrency(1, 200), 200),
        ("{auto: 1..200}", AutoConcurrency(1, 200), 200),
        ("{auto: 4 .. 64}", AutoConcurrency(4, 64), 64),
        ("{auto: 7..7}", AutoConcurrency(7, 7), 7),
    ],
)
def test_a_number_auto_and_a_range_are_read(
    loaded: Load, worker_text: WorkerText, text: str, expected: object, slots: int
) -> None:
    worker = loaded(worker_text(f"concurrency: {text}")).config.workers["charge"]
    assert worker.concurrency == expected
    assert worker.slots == slots
    assert worker.max_abandoned == max(1, slots // 4)


def test_what_is_written_is_read_again() -> None:
    kind = concurrency_kind()
    assert kind.write(AutoConcurrency(4, 64)) == "{auto: 4..64}"
    assert kind.read({"auto": "4..64"}) == AutoConcurrency(4, 64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 3),
        ("concurrency: auto", AutoConcurrency(1, 3)),
        ("concurrency: {auto: 2..200}", AutoConcurrency(2, 200)),
        ("concurrency: 16", 16),
    ],
)
def test_processes_are_as_many_as_cores_unless_it_is_said(
    loaded: Load, worker_text: WorkerText, text: str, expected: object
) -> None:
    worker = loaded(worker_text("pool: processes", text), cores=lambda: 3).config.workers["charge"]
    assert worker.concurrency == expected
    threads = loaded(worker_text(text)).config.workers["charge"]
    assert threads.concurrency != AutoConcurrency(1, 3)
    assert threads.slots in {16, 200}


def test_a_machine_with_many_cores_is_not_refused(loaded: Load, worker_text: WorkerText) -> None:
    many = loaded(worker_text("pool: processes"), cores=lambda: 512)
    assert many.config.workers["charge"].slots == 256


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("atuo", ": 'atuo' is not a whole number from 1 to 10000, auto, or a range such as "),
        ("atuo", "; did you mean auto?"),
        ("1..50", "a range such as {auto: 1..200}; write {auto: 1..50}"),
        ("{auto: 50..1}", "concurrency.auto: '50..1' is not a range of whole numbers such as"),
        ("{auto: 50..1}", ": it has its ends in the wrong order; write 1..50"),
        ("{auto: 0..5}", ": it must lie within 1..10000"),
        ("{auto: 1..10001}", ": it must lie within 1..10000"),
        ("{auto: many}", "'many' is not a range of whole numbers such as 1..200"),
        ("{auto: 5}", "5 is not a range of whole numbers such as 1..200"),
        ("{auto: 1..5, form: 2}", "concurrency.form: unknown key; known is auto"),
        ("{}", "concurrency.auto: is missing: a range of whole numbers such as 1..200"),
    ],
)
def test_what_is_wrong_is_reported_with_what_was_meant(
    refused: Refuse, worker_text: WorkerText, text: str, wrong: str
) -> None:
    message = refused(worker_text(f"concurrency: {text}"))
    assert message.startswith("workers.yaml:7: workers.charge.concurrency")
    assert wrong in message
