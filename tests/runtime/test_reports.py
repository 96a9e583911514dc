"""Lines of the log that say what somebody has to know."""

from __future__ import annotations

import logging

import pytest

from window_consumer.core.decisions import Away, Outlived
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.reports import Reports


@pytest.fixture
def reports() -> Reports:
    return Reports("charge", logging.getLogger("window_consumer"), lambda: 0.0)


def away(number: int) -> Away:
    home = TopicPartition("orders", number)
    return Away(TopicPartition("g.orders.retry.1s", number), home, copies=3, seconds=10.0 + number)


def test_copies_that_wait_are_told_with_their_partitions_and_why(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    reports.away([away(0), away(1)])
    (text,) = caplog.messages
    assert text.startswith(
        "charge: 6 copies wait, for 11 s so far, in g.orders.retry.1s[0] (its source's is"
        " orders[0]), g.orders.retry.1s[1] (its source's is orders[1]): another member"
    )
    assert "retry.levels" in text


def test_many_partitions_whose_copies_wait_make_one_line(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    reports.away([away(number) for number in range(30)])
    (text,) = caplog.messages
    assert "and 26 more partitions" in text


def test_a_copy_that_outlives_its_home_is_not_said_to_be_ignored(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    name = TopicPartition("g.orders.retry.1s", 0)
    reports.outlived([Outlived(name, 5, b"k", counts=True), Outlived(name, 6, b"k")])
    first, second = caplog.messages
    assert "outlived its source's partition" in first
    assert "its result counts" in first
    assert "outlived its partition" in second
    assert "its result will be ignored" in second
