"""Puts back dead letters of an application under test, like ``window-consumer dlq redrive``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from window_consumer.config import ENTRY, TopicNames
from window_consumer.dlq.dead_letter import DeadLetter, Position
from window_consumer.dlq.redrive_copy import (
    DeadLetterHeaders,
    Destination,
    Returning,
    ValueReference,
)
from window_consumer.model.errors import UsageError
from window_consumer.model.record import TopicPartition
from window_consumer.plan.app_plan import AppPlan
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.topics import partition_of


class TestRedrive:
    """Writes dead letters to their group's entry topic. Owner: one thread."""

    __test__ = False  # pytest would take it for a class of tests

    def __init__(self, broker: FakeBroker, plan: AppPlan, make_topic: Callable[[str, int], None]):
        self._broker = broker
        self._plan = plan
        self._make_topic = make_topic
        """Creates a topic, and announces it to the workers."""
        self._resolved: set[Position] = set()

    def unresolved(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Return the dead letters that were not put back yet."""
        return [letter for letter in letters if letter.position not in self._resolved]

    def put_back(self, letters: Iterable[DeadLetter]) -> None:
        """Write dead letters; UsageError for those of another application."""
        for letter in letters:
            to = self._destination(letter)
            topic, partition, offset = letter.position
            message = self._broker.log(topic, partition).at(offset)
            headers = DeadLetterHeaders(message)
            copy = Returning(to).copy(message, headers, self._value(message, headers))
            number = copy.partition
            if number is None:
                number = partition_of(copy.key or b"", to.partitions)
            place = TopicPartition(to.topic, number)
            self._broker.topics.write(place, copy.key, copy.value, copy.headers)
            self._resolved.add(letter.position)

    def _destination(self, letter: DeadLetter) -> Destination:
        configs = self._plan.config.workers.values()
        owners = [each for each in configs if each.group == letter.group]
        if not owners or letter.original_topic is None:
            raise UsageError(
                f"{letter.position} is not a dead letter of this application: its group is"
                f" {letter.group!r}"
            )
        entry = TopicNames(owners[0], self._plan.config.topics).retry(letter.original_topic, ENTRY)
        count = self._broker.topics.partitions
        source = count(letter.original_topic)
        if not count(entry):
            self._make_topic(entry, source)
        return Destination(entry, count(entry), of_the_ladder=True)

    def _value(self, message: FakeMessage, headers: DeadLetterHeaders) -> bytes | None:
        """Return the record's value; follows the reference if the letter has one."""
        text = headers.value_ref
        reference = None if text is None else ValueReference.parse(text)
        if reference is None:
            return message.value()
        return self._broker.log(reference.topic, reference.partition).at(reference.offset).value()
