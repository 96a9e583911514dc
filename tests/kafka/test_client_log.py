"""What the client library says about itself reaches the log, but not twenty times a second."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.golden_texts import Golden
from window_consumer.kafka.client_log import QUIET_S, ClientLog
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.clock import ManualClock

REFUSED = "%s: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after %dms%s)"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def written() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("tests.client_log")
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(lines)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> ClientLog:
    logger = logging.getLogger("tests.client_log")
    return ClientLog(logger, lambda text: text.replace("pw", "***"), clock.now)


def test_lines_that_differ_in_a_duration_alone_are_one_kind(log: ClientLog, written: Lines) -> None:
    log.log(logging.ERROR, REFUSED, "b1", 0, "")
    log.log(logging.ERROR, REFUSED, "b1", 17, ", 3 identical error(s) suppressed")
    assert len(written.lines) == 1


def test_the_same_trouble_at_another_broker_is_another_kind(log: ClientLog, written: Lines) -> None:
    log.log(logging.ERROR, REFUSED, "b1", 0, "")
    log.log(logging.ERROR, REFUSED, "b2", 0, "")
    assert len(written.lines) == 2


def test_a_line_is_said_again_after_a_while_with_the_number_of_those_kept_quiet(
    log: ClientLog, written: Lines, clock: ManualClock
) -> None:
    for _ in range(4):
        log.log(logging.ERROR, REFUSED, "b1", 0, "")
    clock.advance(QUIET_S)
    log.log(logging.ERROR, REFUSED, "b1", 0, "")
    log.log(logging.ERROR, REFUSED, "b1", 0, "")
    assert len(written.lines) == 2
    assert written.lines[1].rpartition("(")[2].startswith("3 more")


def test_secrets_are_masked(log: ClientLog, written: Lines) -> None:
    log.info(LogEvent.CLIENT_LOGGED, "the password pw")
    assert written.lines == ["the password ***"]


def test_a_line_that_cannot_be_written_does_not_raise_into_the_client(
    log: ClientLog, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    log.log(logging.ERROR, "%d", "no number")
    golden(capsys.readouterr().err)


def test_what_the_client_is_about_to_raise_goes_back_to_it(
    log: ClientLog, written: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    def come_across(_line: logging.LogRecord) -> bool:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    written.addFilter(come_across)
    with pytest.raises(KafkaException, match="_FENCED"):
        log.info(LogEvent.CLIENT_LOGGED, "fenced off")
    assert capsys.readouterr().err == ""
