"""A log of segments keeps whole records, within its bounds, and ships each until it is acked."""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import Trouble
from window_consumer.runtime.segment_log.shipper import Outgoing, SegmentShipper
from window_consumer.runtime.segment_log.writer import (
    LogFullError,
    SegmentLog,
    SegmentRules,
    try_lock,
)

MANY = 10**9
LOGGER = logging.getLogger("window_consumer.test")
OnDone = Callable[[PublishFailedError | None], None]
HELD, OVER = LogEvent.TRACE_EVENTS_HELD, LogEvent.TRACE_RECOVERED


def log_in(
    directory: Path, rules: SegmentRules, closed: list[Path] | None = None, room: int = MANY
) -> SegmentLog:
    kept = [] if closed is None else closed
    return SegmentLog(lambda number: directory / f"{number}", rules, lambda: room, kept.append)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: as if the disk were full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


class Numbers(SegmentShipper):
    """Ships numbers, as a message each; a line that is no number is torn."""

    def __init__(self, chunk_bytes: int = MANY):
        super().__init__(Trouble(LOGGER, OVER, "all is well"), HELD, chunk_bytes=chunk_bytes)
        self.given_up: list[bytes] = []

    def messages(self, path: Path, lines: Sequence[bytes]) -> Iterable[Outgoing]:
        assert path.exists()
        whole = [line for line in lines if line.isdigit()]
        self.torn += len(lines) - len(whole)
        return [Outgoing(line, 1) for line in whole]

    def describe(self, error: PublishFailedError) -> str:
        return error.why

    def gives_up(self, message: Outgoing, error: PublishFailedError) -> bool:
        if error.too_large:
            self.given_up.append(message.value)
        return error.too_large


class Broker:
    """Answers at once, or in ``serve``, or not at all."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.errors: dict[int, PublishFailedError] = {}
        self.silent: set[int] = set()
        self.unanswered: list[OnDone] = []

    def send(self, value: bytes, on_done: OnDone, key: bytes | None = None) -> None:
        assert key is None
        number = int(value)
        error = self.errors.get(number)
        if error is None:
            self.taken.append(number)
        if number in self.silent:
            self.unanswered.append(on_done)
        else:
            on_done(error)

    def serve(self, timeout_s: float) -> None:
        pass

    def close(self, timeout_s: float) -> int:
        return len(self.unanswered) * int(timeout_s >= 0)


def test_a_segment_ends_with_the_append_that_reaches_its_size(tmp_path: Path) -> None:
    closed: list[Path] = []
    log = log_in(tmp_path, SegmentRules(max_bytes=6), closed)
    for record in (b"one\n", b"two\n", b"three\n", b"4\n"):
        log.append(record)
    assert contents(tmp_path) == {"1": b"one\ntwo\n", "2": b"three\n", "3": b"4\n"}
    assert [path.name for path in closed] == ["1", "2"]
    log.close_segment()
    assert [path.name for path in closed] == ["1", "2", "3"]
    assert log.appended_bytes == 16


def test_nothing_is_appended_to_a_segment_that_is_too_old(tmp_path: Path) -> None:
    log = log_in(tmp_path, SegmentRules(max_bytes=MANY, max_age_s=0.0))
    log.append(b"one\n")
    log.append(b"two\n")
    assert contents(tmp_path) == {"1": b"one\n", "2": b"two\n"}
    log.close_segment()


def test_what_finds_no_room_is_not_written(tmp_path: Path) -> None:
    log = log_in(tmp_path, SegmentRules(max_bytes=MANY), room=4)
    with pytest.raises(LogFullError):
        log.append(b"three\n")
    log.append(b"one\n")
    assert contents(tmp_path) == {"1": b"one\n"}
    log.close_segment()


def test_a_record_that_does_not_fit_leaves_no_torn_one_behind(tmp_path: Path) -> None:
    log = log_in(tmp_path, SegmentRules(max_bytes=MANY))
    with largest_file(8):
        for record in (b"one\n", b"seven\n", b"eight\n"):
            if record == b"seven\n":
                with pytest.raises(OSError, match="too large"):
                    log.append(record)
            else:
                log.append(record)
    assert contents(tmp_path) == {"1": b"one\n", "2": b"eight\n"}
    log.close_segment()


def test_a_full_disk_gets_no_empty_segments(tmp_path: Path) -> None:
    log = log_in(tmp_path, SegmentRules(max_bytes=MANY, fsync=True))
    with largest_file(2):
        for _ in range(3):
            with pytest.raises(OSError, match="too large"):
                log.append(b"one\n")
    log.append(b"two\n")
    assert contents(tmp_path) == {"1": b"two\n"}
    log.close_segment()


def test_what_comes_after_a_segment_was_deleted_goes_to_another_one(tmp_path: Path) -> None:
    closed: list[Path] = []
    log = log_in(tmp_path, SegmentRules(max_bytes=MANY), closed)
    log.append(b"one\n")
    (tmp_path / "1").unlink()
    log.append(b"two\n")
    assert contents(tmp_path) == {"2": b"two\n"}
    assert closed == []
    log.close_segment()


def test_no_writer_appends_to_a_segment_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"torn")
    log = log_in(tmp_path, SegmentRules(max_bytes=MANY))
    with pytest.raises(FileExistsError):
        log.append(b"one\n")
    log.append(b"two\n")
    assert contents(tmp_path) == {"1": b"torn", "2": b"two\n"}
    log.close_segment()


def test_a_closed_segment_is_deleted_once_all_of_it_is_acked(tmp_path: Path) -> None:
    path, broker, shipper = tmp_path / "1", Broker(), Numbers()
    path.write_bytes(b"1\n2\n3\n")
    broker.errors[2] = PublishFailedError("not now")
    assert not shipper.ship_segment(broker, path, is_closed=True)
    assert (broker.taken, shipper.shipped) == ([1, 3], 2)
    assert path.exists()
    assert shipper.blocked_s > 0
    broker.errors.clear()
    assert shipper.ship_segment(broker, path, is_closed=True)
    # Only what was not acked is sent again.
    assert (broker.taken, shipper.shipped, shipper.blocked_s) == ([1, 3, 2], 3, 0)
    assert not path.exists()


def test_an_open_segment_is_shipped_as_it_grows_and_stays(tmp_path: Path) -> None:
    path, broker, shipper = tmp_path / "1", Broker(), Numbers()
    path.write_bytes(b"1\n2\n3")
    assert shipper.ship_segment(broker, path, is_closed=False)
    assert broker.taken == [1, 2]
    path.write_bytes(b"1\n2\n34\n")
    assert shipper.ship_segment(broker, path, is_closed=False)
    assert broker.taken == [1, 2, 34]
    assert path.exists()
    assert shipper.ship_segment(broker, path, is_closed=True)
    assert (broker.taken, shipper.torn) == ([1, 2, 34], 0)
    assert not path.exists()


def test_torn_lines_are_left_out_and_counted_and_a_whole_one_without_its_end_is_not(
    tmp_path: Path,
) -> None:
    broker, shipper = Broker(), Numbers()
    (tmp_path / "1").write_bytes(b"1\nto\nrn\n2\n\x00\x00")
    (tmp_path / "2").write_bytes(b"3\n4")
    for name in ("1", "2"):
        assert shipper.ship_segment(broker, tmp_path / name, is_closed=True)
    assert broker.taken == [1, 2, 3, 4]
    assert shipper.torn == 3
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("chunk_bytes", [1, 4, 5, 100])
def test_records_are_shipped_whole_whatever_the_chunk(tmp_path: Path, chunk_bytes: int) -> None:
    path, broker, shipper = tmp_path / "1", Broker(), Numbers(chunk_bytes)
    path.write_bytes(b"1\n22\n333\n444444\n5")
    assert shipper.ship_segment(broker, path, is_closed=True)
    assert (broker.taken, shipper.torn) == ([1, 22, 333, 444444, 5], 0)


def test_a_message_that_is_given_up_holds_up_nobody(tmp_path: Path) -> None:
    path, broker, shipper = tmp_path / "1", Broker(), Numbers()
    path.write_bytes(b"1\n200\n3\n")
    broker.errors[200] = PublishFailedError("too large", too_large=True)
    assert shipper.ship_segment(broker, path, is_closed=True)
    assert (broker.taken, shipper.given_up, shipper.shipped) == ([1, 3], [b"200"], 2)
    assert not path.exists()


def test_an_answer_that_comes_late_counts_once(tmp_path: Path) -> None:
    path, broker, shipper = tmp_path / "1", Broker(), Numbers()
    shipper.deadline_s = 0.0
    path.write_bytes(b"1\n2\n")
    broker.silent = {2}
    assert not shipper.ship_segment(broker, path, is_closed=True)
    assert not shipper.ship_segment(broker, path, is_closed=True)
    assert broker.taken == [1, 2, 2]
    assert shipper.blocked_s > 0
    for on_done in broker.unanswered:
        on_done(None)
    assert shipper.ship_segment(broker, path, is_closed=True)
    assert (broker.taken, shipper.shipped) == ([1, 2, 2], 2)
    assert not path.exists()


def test_whoever_has_to_end_waits_for_no_answer(tmp_path: Path) -> None:
    path, broker, shipper = tmp_path / "1", Broker(), Numbers()
    path.write_bytes(b"1\n")
    broker.silent = {1}
    ends = shipper.ship_segment(broker, path, is_closed=True, must_end=lambda: True)
    assert not ends
    assert shipper.blocked_s == 0
    assert path.exists()


def test_a_segment_that_somebody_has_deleted_has_nothing_to_ship(tmp_path: Path) -> None:
    broker = Broker()
    assert Numbers().ship_segment(broker, tmp_path / "1", is_closed=True)
    assert broker.taken == []


def test_a_lock_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    held = try_lock(tmp_path / "lock")
    assert held is not None
    assert try_lock(tmp_path / "lock") is None
    os.close(held)
    again = try_lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_what_lasts_is_logged_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    once, often = Trouble(LOGGER, OVER, "over"), Trouble(LOGGER, OVER, "over", again_s=0.0)
    for trouble in (once, often):
        trouble.begins(HELD, "first")
        trouble.begins(HELD, "again")
        trouble.ends()
    assert caplog.messages == ["first", "over", "first", "again", "over"]
