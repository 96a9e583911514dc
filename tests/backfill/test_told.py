"""What a chunk ended with, told without Spark's own frames."""

from __future__ import annotations

import pytest

from window_consumer.spark.backfill.backlog import end_of

FRAMES = "\n\tat org.apache.spark.scheduler.Task.run(Task.scala:1)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SparkException: Python worker exited unexpectedly (crashed)", "calls os._exit"),
        ("RecordsGoneError: offsets out of range", "--skip-lost continues without them"),
        (
            "PythonException:\nModuleNotFoundError: No module named 'shop.prices'\n",
            "executors cannot import shop.prices: --py-files sends your own files",
        ),
        (
            "Traceback:\n  window_consumer.model.errors.RunError: the sink is closed\nthe end",
            "the sink is closed",
        ),
        ("something else", "something else"),
    ],
)
def test_an_end_is_reported_with_what_to_do(text: str, said: str) -> None:
    found = end_of(Exception(text + FRAMES))
    assert said in found
    assert "Task.scala" not in found
