"""The wheels of a worker's partitions: due records go out, and their acks come in."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from attrs import define, field

from window_consumer.delay.cancel_layer import CancelCheck
from window_consumer.delay.wheel.partition_files import WheelFolder
from window_consumer.delay.wheel.slot_files import OpenFiles
from window_consumer.delay.wheel.waiting_record import DamagedError, WaitingRecord
from window_consumer.model.errors import PublishFailedError, WorkerStoppedError
from window_consumer.model.protocols import Clock, Copy, Sink
from window_consumer.model.record import TopicPartition
from window_consumer.model.record_identity import id_text

T = TypeVar("T")

MOST_IN_FLIGHT: Final = 20_000
"""The most records sent and not acked: they are in memory, as in a full window."""

_MOST_AT_ONCE: Final = 1000
"""Takes some 10 ms: commits and new records must not wait longer."""

_MOST_DECODED: Final = 16 * 1024**2
"""Bytes of records decoded before they are due; as objects they take five times as much."""

_DECODED_AT_ONCE: Final = 128 * 1024
"""For each partition; takes some milliseconds."""

_STEP_S: Final = 0.005
_AGAIN_S: Final = 1.0
"""How long after a failed write to a level it is tried again."""


class _Sent(NamedTuple):
    """A record that was sent, with the wheel that it came from."""

    folder: WheelFolder
    record: WaitingRecord
    detour: bool = False
    """It was sent to a level because its target refused it."""
    is_cancelled: bool = False
    """It is cancelled, so it is not sent."""


@define
class DueSending:
    """How due records are sent. Owner: poll thread, except for ``answers``."""

    sink: Sink
    clock: Clock
    detour: Callable[[WaitingRecord, float], Copy]
    """Returns the copy for a level; the number is the current time in milliseconds since 1970."""
    is_allowed: Callable[[str], bool]
    """Returns whether a topic may get records."""
    check: CancelCheck
    answers: deque[tuple[_Sent, PublishFailedError | None]] = field(factory=deque)
    """Filled by the thread that serves the sink."""


class Wheels(Mapping[TopicPartition, WheelFolder]):
    """The open wheels of one worker. Owner: poll thread."""

    def __init__(self, files: OpenFiles | None = None):
        self.sending: DueSending | None = None
        self._open: dict[TopicPartition, WheelFolder] = {}
        self._ready: dict[TopicPartition, WheelFolder] = {}
        """Wheels of partitions that have not begun, or that begin again."""
        self._files = OpenFiles() if files is None else files
        self._failed: deque[tuple[float, TopicPartition, _Sent]] = deque()
        self._in_flight = 0
        self._decodes = False
        """Records were decoded ahead, and more may follow."""
        self.cancelled = 0
        """How many records were cancelled since they were last counted."""

    def __getitem__(self, name: TopicPartition) -> WheelFolder:
        return self._open[name]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def wall_ms(self) -> float:
        """The current time in milliseconds since 1970."""
        assert self.sending is not None
        return self.sending.clock.wall_ms()

    def prepare(self, name: TopicPartition, folder: WheelFolder) -> None:
        """Keep a wheel for a partition that will begin. Any thread may call it."""
        self._ready[name] = folder

    def take_ready(self, name: TopicPartition) -> WheelFolder | None:
        """Return the prepared wheel for a partition that begins; None if there is none."""
        return self._ready.pop(name, None)

    def begin(self, name: TopicPartition, folder: WheelFolder) -> None:
        """Let a partition's records become due from now on."""
        folder.wheel.use(self._files)
        self._open[name] = folder

    def end(self, name: TopicPartition) -> None:
        """Stop a partition. It may begin again, as after an offset reset; else ``remove``."""
        folder = self._open.pop(name, None)
        if folder is not None:
            folder.continues = True
            self._ready[name] = folder

    def remove(self, name: TopicPartition) -> None:
        """Drop the prepared wheel of a partition that is no longer ours."""
        folder = self._ready.pop(name, None)
        if folder is not None:
            folder.close()

    def clear(self) -> None:
        """Release all partitions: the worker restarts."""
        for name in list(self._open):
            self.end(name)
        for name in list(self._ready):
            self.remove(name)

    # ---- firing

    def fire(self, now: float) -> None:
        """Send what is due."""
        sending = self.sending
        if sending is None:
            return
        wall_ms = sending.clock.wall_ms()
        self._send_again(sending, now, wall_ms)
        if sending.check.wait_s():
            return  # a due record may be cancelled
        cancellations, sends = sending.check.cancellations, False
        # Cancellations that count arrived a second ago.
        may_be_cancelled = bool(cancellations)
        for folder in self._open.values():
            if not len(folder.wheel):
                continue
            room = min(_MOST_AT_ONCE, MOST_IN_FLIGHT - self._in_flight - len(self._failed))
            due = partial(folder.wheel.due, wall_ms, room)
            for record in _or_discard(folder, due) if room > 0 else ():
                sends = True
                record_id = id_text(record.record_id)
                if may_be_cancelled and sending.check.is_cancelled(
                    record_id, partial(int, record.due_ms)
                ):
                    self._in_flight += 1
                    sending.answers.append((_Sent(folder, record, is_cancelled=True), None))
                else:
                    self._send(sending, _Sent(folder, record), wall_ms)
                    cancellations.delivered(record_id)
        self._decodes = not sends and self._decode_ahead(wall_ms)

    def _decode_ahead(self, wall_ms: float) -> bool:
        """Decode some records of the next second; return whether there were any."""
        decoded = sum(folder.wheel.decoded_bytes for folder in self._open.values())
        found = False
        for folder in self._open.values():
            most = min(_DECODED_AT_ONCE, _MOST_DECODED - decoded)
            if most > 0 and len(folder.wheel):
                done = _or_discard(folder, partial(folder.wheel.decode_ahead, wall_ms, most))
                decoded += done
                found = found or done > 0
        return found

    def _send(self, sending: DueSending, sent: _Sent, wall_ms: float) -> None:
        copy = sent.record.copy
        if not sent.detour and not sending.is_allowed(copy.topic):
            sent = _Sent(sent.folder, sent.record, detour=True)
        if sent.detour:
            copy = sending.detour(sent.record, wall_ms)
        self._in_flight += 1
        sending.sink.write(copy, partial(_answered, sending.answers, sent))

    def take_answers(self, now: float) -> dict[TopicPartition, int]:
        """Return how many records of partitions are done since the last call."""
        sending = self.sending
        if sending is None or not sending.answers:
            return {}
        names = {id(folder): name for name, folder in self._open.items()}
        acked: defaultdict[TopicPartition, list[_Sent]] = defaultdict(list)
        while sending.answers:
            sent, error = sending.answers.popleft()
            self._in_flight -= 1
            name = names.get(id(sent.folder))
            if name is None:
                continue
            if error is None:
                acked[name].append(sent)
            else:
                again = now + (_AGAIN_S if sent.detour else 0.0)
                detoured = _Sent(sent.folder, sent.record, detour=True)
                self._failed.append((again, name, detoured))
        return {name: self._on_acked(name, sent) for name, sent in acked.items()}

    def _on_acked(self, name: TopicPartition, acked: Sequence[_Sent]) -> int:
        self._open[name].wheel.done([each.record for each in acked])
        cancelled = sum(each.is_cancelled for each in acked)
        self.cancelled += cancelled
        return len(acked) - cancelled

    def wait_for_answers(self, seconds: float) -> None:
        """Wait until all sent records have answers, at most this long."""
        sending = self.sending
        if sending is None:
            return
        deadline = sending.clock.now() + seconds
        while self._in_flight > len(sending.answers) and sending.clock.now() < deadline:
            sending.clock.sleep(_STEP_S)

    def _send_again(self, sending: DueSending, now: float, wall_ms: float) -> None:
        for _ in range(len(self._failed)):
            again, name, sent = self._failed.popleft()
            if self._open.get(name) is not sent.folder:
                continue
            if now < again:
                self._failed.append((again, name, sent))
            else:
                self._send(sending, sent, wall_ms)

    def next_due(self, now: float) -> float:
        """Return when ``fire`` should be called again."""
        if self._in_flight or self._failed or self._decodes:
            return now + _STEP_S
        if self.sending is None:
            return math.inf
        wall_ms = self.sending.clock.wall_ms()
        due = (each.wheel.next_ms(wall_ms) for each in self._open.values() if len(each.wheel))
        first = min((ms for ms in due if ms is not None), default=None)
        return math.inf if first is None else now + max(_STEP_S, (first - wall_ms) / 1000)


def _or_discard(folder: WheelFolder, read: Callable[[], T]) -> T:
    """Return the records read from a wheel; discard its files if one of them is damaged."""
    try:
        return read()
    except DamagedError as error:
        folder.discard()
        raise WorkerStoppedError(
            f"{folder.path}: a file is damaged; at the next start it is read from Kafka again"
        ) from error


def _answered(
    answers: deque[tuple[_Sent, PublishFailedError | None]],
    sent: _Sent,
    error: PublishFailedError | None,
) -> None:
    answers.append((sent, error))
