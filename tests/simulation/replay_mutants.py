"""Replays with one planted bug each, and a rule of parking that takes their copies for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import Finish, HoldUntilReleased, Turn
from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.rules import Parking
from window_consumer.replay.copies import ReplayCopies
from window_consumer.replay.ranges import LastRun, Ranges, remaining
from window_consumer.replay.replay import Replay


def resumes_one_too_far(last: LastRun, logs: Mapping[TopicPartition, Span]) -> Ranges:
    """A run that is resumed passes over the first record that is left."""
    return {
        name: evolve(each, span=Span(min(each.span.first + 1, each.span.end), each.span.end))
        for name, each in remaining(last, logs).items()
    }


def resumes_from_the_start(last: LastRun, logs: Mapping[TopicPartition, Span]) -> Ranges:
    """A run that is resumed copies everything again."""
    return {
        name: evolve(each, span=Span(logs[name].first, each.span.end))
        for name, each in remaining(last, logs).items()
    }


def commits_what_is_sent(*, outlet: Any, finish: Callable[[], None], **parts: Any) -> Replay:
    """The progress is committed when the copies are sent."""

    class Hasty:
        def send(self, copies: Sequence[Copy]) -> None:
            outlet.send(copies)

        def acks(self) -> Mapping[int, PublishFailedError]:
            finish()
            found: Mapping[int, PublishFailedError] = outlet.acks()
            return found

    return Replay(outlet=Hasty(), finish=finish, **parts)


def concludes_at_once(*, finish: Callable[[], None], conclude: Any, **parts: Any) -> Replay:
    """A run counts as over when its first batch is committed."""

    def both() -> None:
        finish()
        conclude()

    return Replay(finish=both, conclude=conclude, **parts)


def never_concludes(*, conclude: object, **parts: Any) -> Replay:
    """A run is never over: the same command copies nothing any more."""
    del conclude
    return Replay(conclude=lambda: None, **parts)


def skips_the_last_of_a_read(*, records: Any, **parts: Any) -> Replay:
    """The last record of each read gets lost."""

    class Short:
        def read(self, max_records: int) -> Any:
            found = records.read(max_records)
            return found[:-1] or found

        def check_alone(self) -> None:
            records.check_alone()

    return Replay(records=Short(), **parts)


class CopiesWithoutTheirRun(ReplayCopies):
    """A copy does not say that a replay has written it."""

    def copy(self, message: Message) -> Copy:
        copy = super().copy(message)
        return copy._replace(headers=[each for each in copy.headers if each[0] != names.REPLAY])


class CopiesOfCalls(ReplayCopies):
    """A record's own headers come along, also those that count its calls."""

    def copy(self, message: Message) -> Copy:
        copy = super().copy(message)
        said = {name for name, _ in copy.headers}
        more = [pair for pair in message.headers() or () if pair[0] not in said]
        return copy._replace(headers=[*more, *copy.headers])


class CopiesByKey(ReplayCopies):
    """A copy goes where its key says, away from its lane."""

    def copy(self, message: Message) -> Copy:
        return super().copy(message)._replace(partition=None)


class FinishesReplayed(Parking):
    """A record that is replayed counts as parked, as if its copy were the first one's."""

    def _copy_turn(self, partition: Partition, message: Message) -> Turn | None:
        turn = super()._copy_turn(partition, message)
        return Finish(Outcome.PARKED) if turn is None and _is_replayed(message) else turn


class CallsReplayedAtOnce(Parking):
    """A replayed record starts whatever is before it."""

    def _copy_turn(self, partition: Partition, message: Message) -> Turn | None:
        turn = super()._copy_turn(partition, message)
        is_held = isinstance(turn, HoldUntilReleased)
        return None if is_held and _is_replayed(message) else turn


def _is_replayed(message: Message) -> bool:
    return names.REPLAY in dict(message.headers() or ())
