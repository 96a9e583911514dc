"""The key ``rate_per_process``: text, or a mapping with what it is for and its burst."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from window_consumer.config import LoadedConfig
from window_consumer.config.sections.rate import rate_kind

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


@pytest.mark.parametrize(
    ("text", "per_s", "per", "burst"),
    [
        ("500/s", 500.0, "worker", 50),
        ("30/min", 0.5, "worker", 1),
        ("1.5/s", 1.5, "worker", 1),
        ("3600 / h", 1.0, "worker", 1),
        ("{rate: 500/s, per: key, burst: 7}", 500.0, "key", 7),
        ("{rate: 60/min, per: partition}", 1.0, "partition", 1),
        ("{rate: 5/s, per: class}\n    fair: {by: key}", 5.0, "class", 1),
    ],
)
def test_rates_are_read(
    loaded: Load, worker_text: WorkerText, text: str, per_s: float, per: str, burst: int
) -> None:
    rate = loaded(worker_text(f"rate_per_process: {text}")).config.workers["charge"]
    assert rate.rate_per_process is not None
    found = rate.rate_per_process
    assert (found.per_s, found.per, found.burst) == (per_s, per, burst)


def test_without_it_there_is_no_rate(loaded: Load, worker_text: WorkerText) -> None:
    assert loaded(worker_text()).config.workers["charge"].rate_per_process is None


def test_what_is_written_says_all_of_it() -> None:
    kind = rate_kind()
    assert kind.write(kind.read("500/s")) == "{rate: 500/s, per: worker, burst: 50}"
    assert kind.read({"rate": "500/s", "per": "worker", "burst": 50}).burst == 50


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("500", "it has no unit of time; write 500/s, 500/min or 500/h"),
        ("500/sec", "it has the unknown unit '/sec'; write 500/s"),
        ("500/m", "it has the unknown unit '/m'; write 500/min"),
        ("5/d", "it has the unknown unit '/d'; units are /s, /min and /h"),
        ("fast", "'fast' is not a rate such as 500/s, 30/min or 1000/h, or {rate: 500/s, per: "),
        ("-1/s", "it is not a rate"),
        ("0/s", "it must lie between 1 a day and 1000000/s"),
        ("2000000/s", "it must lie between 1 a day and 1000000/s"),
        ("[1]", "a list is not a rate such as"),
        ("{rate: 5/s, per: topic}", "rate_per_process.per: 'topic' is not one of worker, key, "),
        ("{rate: 5/s, per: class}", "rate_per_process: is per class, but no classes are defined"),
        ("{rate: 5/s, bust: 3}", "rate_per_process.bust: unknown key; did you mean burst?"),
        ("{rate: 5/s, burst: 0}", "rate_per_process.burst: 0 is not a whole number from 1 to "),
        ("{per: key}", "rate_per_process.rate: is missing: a rate such as 500/s"),
        ("{rate: 5}", "rate_per_process.rate: 5 is not a rate such as"),
    ],
)
def test_what_is_wrong_is_reported_with_what_was_meant(
    refused: Refuse, worker_text: WorkerText, text: str, wrong: str
) -> None:
    message = refused(worker_text(f"rate_per_process: {text}"))
    assert message.startswith("workers.yaml:7: workers.charge.rate_per_process")
    assert wrong in message
