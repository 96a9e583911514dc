"""Wheels with one planted bug each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from window_consumer.delay.cancel_layer import CancelCheck
from window_consumer.delay.cancellations import Cancellations
from window_consumer.delay.wheel.guarantee import WheelGuarantee
from window_consumer.delay.wheel.partition_files import WheelFolder
from window_consumer.delay.wheel.preparation import WheelPreparation
from window_consumer.delay.wheel.wheels import DueSending, Wheels
from window_consumer.engine.commits.delivery_guarantee import AtLeastOnce
from window_consumer.engine.partition import Partition
from window_consumer.model.offset_ranges import Ranges, united
from window_consumer.model.protocols import Clock, Commit
from window_consumer.model.record import TopicPartition


class CommitsPastWhatWaits(WheelGuarantee):
    """Records taken in are committed, although they wait."""

    def progress(self, partition: Partition) -> tuple[int, Iterator[range]]:
        return AtLeastOnce.progress(self, partition)


class FiresWithoutAcks(WheelGuarantee):
    """A second has fired when it is over, whatever the broker has acked."""

    def commit(self, partition: Partition, now: float, *, clean: bool) -> Commit | None:
        partition.commit.fired = int(self._wheels.wall_ms // 1000)
        partition.commit.delivered = ()
        return AtLeastOnce.commit(self, partition, now, clean=clean)


class CountsWhatIsInFlight(WheelGuarantee):
    """The commit counts sent records as delivered."""

    def commit(self, partition: Partition, now: float, *, clean: bool) -> Commit | None:
        wheel = self._wheels[partition.name].wheel
        honest = wheel.delivered

        def delivered() -> Ranges:
            in_flight = [(each, each + 1) for each in wheel._in_flight]
            return united([*honest(), *in_flight])

        wheel.delivered = delivered  # type: ignore[method-assign] # a planted bug
        try:
            return super().commit(partition, now, clean=clean)
        finally:
            wheel.delivered = honest  # type: ignore[method-assign] # as before


class CountsAsDoneWhenSent(Wheels):
    """Nobody waits for acks."""

    def _send(self, sending: DueSending, sent: Any, wall_ms: float) -> None:
        del wall_ms
        self._in_flight += 1
        sending.sink.write(sent.record.copy, lambda _: None)
        sending.answers.append((sent, None))


class DropsWhatIsRefused(Wheels):
    """A refused record is done."""

    def take_answers(self, now: float) -> dict[TopicPartition, int]:
        assert self.sending is not None
        answers = self.sending.answers
        for _ in range(len(answers)):
            answers.append((answers.popleft()[0], None))
        return super().take_answers(now)


class _Ahead:
    """A clock that is 50 ms ahead."""

    def __init__(self, clock: Clock):
        self.now, self.sleep = clock.now, clock.sleep
        self._wall_ms = clock.wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms() + 50


class FiresEarly(Wheels):
    """Records due within 50 ms are sent."""

    def fire(self, now: float) -> None:
        honest = self.sending
        assert honest is not None
        self.sending = evolve(honest, clock=_Ahead(honest.clock))
        super().fire(now)
        self.sending = honest


class IgnoresCancellations(Wheels):
    """Nothing is cancelled."""

    def fire(self, now: float) -> None:
        honest = self.sending
        assert honest is not None
        self.sending = evolve(honest, check=CancelCheck(Cancellations(1e9), honest.check.age_s))
        super().fire(now)
        self.sending = honest


class ReadsNothingFromKafka(WheelPreparation):
    """A host has only the records of its files."""

    def _read_missing(self, opened: Mapping[TopicPartition, WheelFolder]) -> None:
        """Read nothing."""


class RecordsBeforeItWrites(WheelFolder):
    """The files count as covering records that they do not hold yet."""

    def save(self, taken: Ranges) -> None:
        self._taken = taken
        self.record()
        self.wheel.flush()
