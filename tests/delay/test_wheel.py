"""The wheel of one partition alone: what waits, what is due, and its files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from window_consumer.delay.wheel.offsets import OffsetSet
from window_consumer.delay.wheel.slot_files import MAX_OPEN, OpenFiles, SlotFiles
from window_consumer.delay.wheel.waiting_record import DamagedError, WaitingRecord, decode, encode
from window_consumer.delay.wheel.wheel import SLOTS, Wheel
from window_consumer.model.protocols import Copy

BEGIN_S = 1_700_000_000
BEGIN_MS = BEGIN_S * 1000


HEAD_BYTES = 4


def record(offset: int, due_ms: int, value: bytes | None = b"v") -> WaitingRecord:
    headers = [("wc-id", b"%d" % offset), ("none", None)]
    return WaitingRecord(due_ms, offset, Copy("orders", None, b"k", value, headers), 3, offset, 7)


def wheel_in(directory: Path, files: OpenFiles | None = None) -> Wheel:
    return Wheel(SlotFiles(directory, OpenFiles() if files is None else files), BEGIN_S - 1)


def taken(wheel: Wheel, wall_ms: float, most: int = 10_000) -> list[int]:
    return [each.offset for each in wheel.due(wall_ms, most)]


@given(
    st.integers(0, 2**60),
    st.none() | st.binary(max_size=50),
    st.none() | st.binary(max_size=50),
    st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=4),
    st.none() | st.integers(0, 2**40),
)
def test_a_record_comes_back_as_it_was(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int | None,
) -> None:
    waiting = WaitingRecord(9, offset, Copy("orders", None, key, value, headers), 1, 2, timestamp)
    assert decode(encode(waiting)) == waiting


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=200))
def test_a_set_of_offsets_is_a_set(changes: list[tuple[bool, int]]) -> None:
    offsets, model = OffsetSet(), set[int]()
    for adds, offset in changes:
        if adds:
            offsets.add(offset)
            model.add(offset)
        else:
            offsets.discard([offset])
            model.discard(offset)
        assert offsets.lowest() == min(model, default=None)
        assert (offset in offsets) == (offset in model)
        assert len(offsets) == len(model)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4000)),
        st.tuples(st.just("pass"), st.integers(0, 1500)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(0, 3)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("decode"), st.integers(1, 200)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_each_record_is_taken_once_and_never_early(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = OpenFiles(2)
        wheel = wheel_in(Path(directory), files)
        now, waiting, in_flight, took = BEGIN_MS, dict[int, int](), list[WaitingRecord](), 0
        for offset, (what, number) in enumerate(steps):
            if what == "add" and wheel.takes(now + number, now):
                wheel.add(record(offset, now + number))
                waiting[offset] = now + number
            elif what == "pass":
                now += number
            elif what == "take":
                found = wheel.due(now, number)
                assert all(waiting[each.offset] == each.due_ms <= now for each in found)
                in_flight += found
                took += len(found)
            elif what == "ack" and in_flight:
                done = in_flight.pop(number % len(in_flight))
                wheel.done([done])
                del waiting[done.offset]
            elif what == "flush":
                wheel.flush()
            elif what == "decode":
                wheel.decode_ahead(now, number)
            assert len(files) <= 2
            assert wheel.lowest == min(waiting, default=None)
            for second in wheel.over(now):
                wheel.delete_fired(second)
            assert all(due // 1000 > wheel.fired for due in waiting.values())
        open_ = {each.offset for each in in_flight}
        assert set(taken(wheel, now + 10_000)) == waiting.keys() - open_


def test_records_of_a_second_go_out_as_they_are_due(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    for offset, ms in enumerate([900, 0, 500, 9, 501]):
        wheel.add(record(offset, BEGIN_MS + ms))
    assert taken(wheel, BEGIN_MS - 1) == []
    assert taken(wheel, BEGIN_MS + 9) == [1, 3]
    assert taken(wheel, BEGIN_MS + 510) == [2, 4]
    assert taken(wheel, BEGIN_MS + 2000) == [0]


def test_a_slot_that_is_loaded_ahead_lets_an_earlier_second_go_first(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    wheel.add(record(0, BEGIN_MS + 2000))
    assert wheel.next_ms(BEGIN_MS) == BEGIN_MS + 1500
    assert taken(wheel, BEGIN_MS + 1600) == []
    assert wheel.next_ms(BEGIN_MS + 1600) == BEGIN_MS + 2000
    wheel.add(record(1, BEGIN_MS + 1700))
    wheel.add(record(2, BEGIN_MS + 2000))
    assert taken(wheel, BEGIN_MS + 1710) == [1]
    assert taken(wheel, BEGIN_MS + 2010) == [0, 2]


def test_records_that_were_decoded_ahead_go_out_in_the_same_order(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    for offset, ms in enumerate([900, 0, 500, 9, 501]):
        wheel.add(record(offset, BEGIN_MS + ms))
    early = BEGIN_MS - 400
    assert wheel.decode_ahead(BEGIN_MS - 600, 10_000) == 0, "the slot is not loaded yet"
    first = wheel.decode_ahead(early, 1)
    assert wheel.decoded_bytes == first > 0
    assert wheel.decode_ahead(early, 10_000) == 4 * first
    assert wheel.decode_ahead(early, 10_000) == 0
    wheel.add(record(5, BEGIN_MS + 5))
    assert taken(wheel, early) == []
    assert taken(wheel, BEGIN_MS + 9, 2) == [1, 3]
    assert wheel.decoded_bytes == 3 * first
    assert taken(wheel, BEGIN_MS + 2000) == [5, 2, 4, 0]
    assert wheel.decoded_bytes == 0


def test_a_second_has_fired_when_all_of_it_is_acked(tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    wheel.add(record(0, BEGIN_MS))
    wheel.add(record(1, BEGIN_MS + 999))
    first, second = wheel.due(BEGIN_MS + 1000, 10)
    wheel.done([second])
    assert wheel.over(BEGIN_MS + 1000) == []
    assert wheel.delivered() == ((1, 2),)
    wheel.done([first])
    assert wheel.over(BEGIN_MS + 1000) == [BEGIN_S]
    assert wheel.fired == BEGIN_S
    wheel.delete_fired(BEGIN_S)
    assert list(tmp_path.iterdir()) == []
    assert not wheel.takes(BEGIN_MS, BEGIN_MS)


def test_all_slots_of_a_wheel_keep_few_files_open(tmp_path: Path) -> None:
    files = OpenFiles()
    wheel = wheel_in(tmp_path, files)
    for offset in range(SLOTS):
        wheel.add(record(offset, BEGIN_MS + offset * 1000))
    wheel.flush()
    assert len(files) == MAX_OPEN
    assert len(list(tmp_path.iterdir())) == SLOTS
    assert taken(wheel, BEGIN_MS + 2010) == [0, 1, 2]


@pytest.mark.parametrize("damage", ["cut", "shorter", "changed"])
def test_a_damaged_file_is_noticed(tmp_path: Path, damage: str) -> None:
    wheel = wheel_in(tmp_path)
    for offset in range(3):
        wheel.add(record(offset, BEGIN_MS + offset))
    wheel.flush()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    third = (len(whole) - HEAD_BYTES) // 3
    changed = bytes([*whole[:-2], whole[-2] ^ 1, whole[-1]])
    path.write_bytes({"cut": whole[:-5], "shorter": whole[:-third], "changed": changed}[damage])
    with pytest.raises(DamagedError):
        wheel.due(BEGIN_MS + 1000, 10)


def test_a_file_that_a_killed_process_left_empty_is_used(tmp_path: Path) -> None:
    (tmp_path / f"{BEGIN_S}.slot").touch()
    wheel = wheel_in(tmp_path)
    wheel.restore(lambda _: True, BEGIN_S - 1)
    wheel.add(record(0, BEGIN_MS))
    wheel.flush()
    later = wheel_in(tmp_path)
    later.restore(lambda _: True, BEGIN_S - 1)
    assert taken(later, BEGIN_MS + 9) == [0]
