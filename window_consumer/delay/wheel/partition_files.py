"""The folder of one partition's wheel: its slots and the offsets they cover.

The files are a cache of the topic. They count only if this machine has not been restarted since
they were written: a killed process loses nothing that the operating system has accepted. Otherwise,
or if anything is damaged, the wheel is read from Kafka.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from window_consumer.delay.wheel.slot_files import OpenFiles, SlotFiles
from window_consumer.delay.wheel.waiting_record import DamagedError
from window_consumer.delay.wheel.wheel import Wheel
from window_consumer.engine.commits.commit_metadata import CommitNote
from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.offset_ranges import Ranges, united, without
from window_consumer.model.record import TopicPartition
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.runtime.segment_log.writer import try_lock

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_POSITION: Final = "position.json"
_LOCK: Final = "lock"


def boot_id() -> str | None:
    """Return an id that changes with each start of the machine; None if the system has none."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else None


@frozen
class Cached:
    """The offsets that an earlier owner's files cover."""

    taken: Ranges
    """Offsets whose records are in the files or no longer wait; also all offsets before the
    first."""
    fired: int


@define
class WheelFolder:
    """A wheel on disk, used by one process at a time. Owner: one thread at a time."""

    path: Path
    wheel: Wheel
    begins_at: int | None
    """The offset from which the window takes records in; None without a commit."""
    committed: int | None
    topic_hash: int
    missing: Ranges
    """Offsets that the earlier owner took in but the files do not cover: read them from Kafka."""
    _lock: int
    continues: bool = False
    """It was open before in this process: the window begins where the wheel does."""
    _taken: Ranges = ()
    _boot: str | None = field(factory=boot_id)

    @classmethod
    def open(
        cls,
        directory: Path,
        name: TopicPartition,
        files: OpenFiles,
        note: CommitNote | None,
        wall_ms: float,
    ) -> WheelFolder:
        """Open a partition's wheel as its last commit describes it.

        Raises RunError while another process has it, and OSError.
        """
        path = directory / f"{name.topic}-{name.partition}"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = try_lock(path / _LOCK)
        if lock is None:
            raise RunError(f"{path}: another process has not released it yet")
        try:
            return cls._opened(path, files, note, wall_ms, lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def _opened(
        cls, path: Path, files: OpenFiles, note: CommitNote | None, wall_ms: float, lock: int
    ) -> WheelFolder:
        slots = SlotFiles(path, files)
        now = int(wall_ms // 1000) - 1
        if note is None or note.fired is None:
            _clear(slots)
            offset = None if note is None else note.next_offset
            hashed = 0 if note is None else note.topic_hash
            return cls(path, Wheel(slots, now), offset, offset, hashed, (), lock)
        taken = united((each.start, each.stop) for each in note.finished)
        open_ = without(taken, note.delivered)
        wheel, cached = Wheel(slots, note.fired), _cached(path, note.topic_hash)
        covered: Ranges = ()
        if cached is not None:
            try:
                wheel.restore(contained_in(open_), cached.fired)
                covered = cached.taken
            except DamagedError as error:
                LOGGER.warning(
                    "delay: the files in %s are not used, and waiting records are read from"
                    " Kafka: %s",
                    path,
                    error,
                    extra={"event": LogEvent.WHEEL_DISCARDED},
                )
                cached = None
        if cached is None:
            _clear(slots)
            wheel = Wheel(slots, note.fired)
        missing = without(open_, covered)
        places = note.taken_until, note.next_offset
        return cls(path, wheel, *places, note.topic_hash, missing, lock)

    def reset(self, wall_ms: float) -> None:
        """Begin with an empty wheel: everything will be delivered again."""
        self.wheel = self.wheel.emptied(int(wall_ms // 1000) - 1)

    def save(self, taken: Ranges) -> None:
        """Write all waiting records, and record that the files cover these offsets from now on."""
        self.wheel.flush()
        self._taken = taken
        self.record()

    def record(self) -> None:
        """Record the last second that has fired."""
        position = {
            "boot": self._boot,
            "topic_hash": self.topic_hash,
            "taken": self._taken,
            "fired": self.wheel.fired,
        }
        new = self.path / f"{_POSITION}.new"
        new.write_text(json.dumps(position))
        new.replace(self.path / _POSITION)

    def discard(self) -> None:
        """Let no later process use the files, because they are damaged."""
        (self.path / _POSITION).unlink(missing_ok=True)

    def delete_fired(self, fired: Iterable[int]) -> None:
        """Record that seconds have fired, then delete their files."""
        seconds = list(fired)
        if seconds:
            self.record()
        for second in seconds:
            self.wheel.delete_fired(second)

    def close(self) -> None:
        """Release the folder."""
        try:
            self.wheel.close()
        finally:
            os.close(self._lock)


def _clear(slots: SlotFiles) -> None:
    for _ in slots.found():
        """From now on the slot is known."""
    slots.delete_all()


def _cached(path: Path, topic_hash: int) -> Cached | None:
    try:
        found: Any = json.loads((path / _POSITION).read_text())
        taken = [(int(start), int(stop)) for start, stop in found["taken"]]
        cached = Cached(united([(0, taken[0][0]), *taken]), int(found["fired"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    ours = found.get("boot") is not None and found["boot"] == boot_id()
    return cached if ours and found.get("topic_hash") == topic_hash else None


def contained_in(ranges: Ranges) -> Callable[[int], bool]:
    """Return a test of whether an offset is in these ascending ranges."""
    starts = [start for start, _ in ranges]

    def contains(offset: int) -> bool:
        at = bisect_right(starts, offset) - 1
        return at >= 0 and offset < ranges[at][1]

    return contains
