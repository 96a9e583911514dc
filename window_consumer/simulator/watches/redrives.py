"""Watches redrives: which dead letters are read, put back, remembered, skipped or duplicated.

It judges by the topics' contents and the commits, not by a redrive's counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from attrs import define, field

from window_consumer.dlq.dead_letter import Position
from window_consumer.dlq.redrive import RedriveRules
from window_consumer.dlq.redrive_state import Resolved, read_resolved
from window_consumer.model import headers as names
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.header_values import count
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import KnownRecord
from window_consumer.simulator.watches.copies import CopyWatch, differences
from window_consumer.testing.fakes.log import FakeLog, FakeMessage

_GOES_ALONG = (
    names.ID,
    names.ORIGINAL_TOPIC,
    names.ORIGINAL_PARTITION,
    names.ORIGINAL_OFFSET,
    names.ORIGINAL_TIMESTAMP,
    names.ORIGINAL_TOPIC_ID,
    names.FORMAT,
    names.GROUP,
    names.ATTEMPTS,
    names.FIRST_FAILURE,
    names.LAST_FAILURE,
)
_STAYS_BEHIND = (
    names.REASON,
    names.ERROR_CLASS,
    names.ERROR_MESSAGE,
    names.ERROR_STACK,
    names.ERROR_FINGERPRINT,
    names.LEVEL,
    names.NOT_BEFORE,
    names.VALUE_REF,
)


@define(eq=False)
class WatchedLetter:
    """A dead letter."""

    message: FakeMessage
    record: KnownRecord
    """The record that it is a copy of."""
    copies: int = 0
    """How many copies are in the entry topic."""
    acked: bool = False
    remembered: bool = False
    left: bool = False
    """It could not be put back: its value was gone or its copy too large."""

    @property
    def position(self) -> Position:
        """Its position."""
        return Position(self.message.topic(), self.message.partition(), self.message.offset())

    @property
    def headers(self) -> Mapping[str, bytes | None]:
        """Its headers; ours occur once each."""
        return dict(self.message.headers() or ())


@define(eq=False)
class WatchedRun:
    """One process that puts dead letters back."""

    name: str
    rules: RedriveRules
    topic: str
    """The topic of dead letters."""
    restart: bool
    resolved: set[WatchedLetter] = field(factory=set)
    """Letters resolved when it began, which it must not put back; empty at a restart."""
    read: list[WatchedLetter] = field(factory=list)
    """Letters that may be put back but have not been yet."""
    uncommitted: int = 0
    """How many were read since the last commit."""
    sent: dict[int, tuple[Copy, WatchedLetter]] = field(factory=dict)
    acked: set[WatchedLetter] = field(factory=set)
    written: set[WatchedLetter] = field(factory=set)
    refused: set[WatchedLetter] = field(factory=set)
    gone: set[WatchedLetter] = field(factory=set)
    """Letters that refer to a value that is missing."""

    def __str__(self) -> str:
        return self.name

    def wants(self, letter: WatchedLetter) -> bool:
        """Return whether it should put a dead letter back."""
        rules = self.rules
        if rules.matches is not None and not rules.matches(letter.message):
            return False
        return letter.record.redrives < rules.max_redrives and letter not in self.resolved

    def can_have(self, letter: WatchedLetter) -> bool:
        """Return whether the copy has a value and the broker accepts it."""
        return letter not in self.refused and letter not in self.gone


class RedriveWatch:
    """Checks every step of redriving processes. Owner: one thread."""

    def __init__(self, history: SimulationHistory, copies: CopyWatch):
        self._history = history
        self._dead_letters = copies.dead_letters
        self._letters: dict[FakeLog, dict[int, WatchedLetter]] = {}
        self._at_work: list[WatchedRun] = []
        self._may_repeat: dict[str, int] = {}
        """By topic of dead letters: how many duplicates the entry topic may have."""

    def _violate(self, text: str) -> None:
        self._history.violate(text)

    def _letters_of(self, log: FakeLog) -> dict[int, WatchedLetter]:
        """Return the dead letters of a log, new ones included."""
        known = self._letters.setdefault(log, {})
        copies = self._dead_letters.get(log, {})
        for offset, record in islice(copies.items(), len(known), None):
            known[offset] = WatchedLetter(log.at(offset), record)
        return known

    def _all(self, topic: str) -> list[WatchedLetter]:
        logs = self._history.broker.topics.by_name[topic].logs
        return [letter for log in logs for letter in self._letters_of(log).values()]

    # ---- one process

    def begin(self, run: WatchedRun, resolved: Resolved) -> None:
        """Record a process's start; it has read ``resolved`` from the memory topic."""
        for letter in self._all(run.topic):
            if letter.remembered and letter.position not in resolved:
                self._violate(f"{letter.position} was resolved, but {run} finds it open")
        if not run.restart:
            run.resolved = {each for each in self._all(run.topic) if each.remembered}
        if any(each.topic == run.topic for each in self._at_work):
            # The same redrive runs twice, which is only detected at the next commit.
            self._allow_repeats(run)
        self._at_work.append(run)

    def _allow_repeats(self, run: WatchedRun) -> None:
        allowed = self._may_repeat.get(run.topic, 0)
        self._may_repeat[run.topic] = allowed + run.rules.batch_records

    def read(self, run: WatchedRun, messages: Sequence[FakeMessage]) -> None:
        """Check the dead letters that a process reads."""
        run.uncommitted += len(messages)
        if run.uncommitted > run.rules.batch_records:
            self._violate(
                f"{run} has read {run.uncommitted} dead letters since its last commit, a batch is"
                f" {run.rules.batch_records}"
            )
        for message in messages:
            log = self._history.broker.log(message.topic(), message.partition())
            letter = self._letters_of(log).get(message.offset())
            if letter is not None:
                run.read.append(letter)

    def fetched(self, run: WatchedRun, place: tuple[str, int, int], found: Message | None) -> None:
        """Record a process's request for the value that a dead letter refers to."""
        start = "{}/{}/{} ".format(*place).encode()
        value = None if found is None else found.value()
        for letter in run.read:
            reference = letter.headers.get(names.VALUE_REF) or b""
            if reference.startswith(start) and value != letter.record.first.message.value():
                run.gone.add(letter)

    def sending(self, run: WatchedRun, copy: Copy) -> None:
        """Check a copy that a process sends to the entry topic."""
        if copy.topic == run.rules.state_topic:
            return
        alike = [letter for letter in run.read if _is_copy_of(letter, copy)]
        alike.sort(key=lambda each: not (run.wants(each) and run.can_have(each)))
        if not alike:
            self._violate(f"{run} puts something back that is no dead letter that it has read")
            return
        letter = alike[0]
        run.read.remove(letter)
        run.sent[id(copy)] = (copy, letter)
        place = letter.position
        if letter in run.resolved:
            self._violate(f"{run} puts {place} back although it is resolved")
        elif not run.wants(letter):
            self._violate(
                f"{run} puts {place} back, which was put back {letter.record.redrives} times"
            )
        for text in _wrong(letter, copy, run):
            self._violate(f"{run} puts {place} back as another record: {text}")

    def written(self, run: WatchedRun, copy: Copy, message: FakeMessage) -> None:
        """Record a copy in the entry topic, a record like any other, or one in the memory."""
        if copy.topic == run.rules.state_topic:
            self._remembered(run, message)
        if id(copy) not in run.sent:
            return
        letter = run.sent[id(copy)][1]
        history = self._history
        log = history.broker.log(message.topic(), message.partition())
        parent = letter.record
        history.produced(
            log, message, poison=parent.poison, deadly=parent.deadly, copy_of=parent, put_back=True
        )
        letter.copies += 1
        again = letter.copies > 1 and not (run.restart and letter not in run.written)
        run.written.add(letter)
        if again:
            left = self._may_repeat[run.topic] = self._may_repeat.get(run.topic, 0) - 1
            if left < 0:
                self._violate(
                    f"{run} puts {letter.position} back once more: more than one batch for each"
                    " process that was killed came twice"
                )

    def answered(self, run: WatchedRun, copy: Copy, error: PublishFailedError | None) -> None:
        """Record the broker's answer for a copy."""
        if id(copy) not in run.sent:
            return
        letter = run.sent[id(copy)][1]
        if error is None:
            letter.acked = True
            run.acked.add(letter)
        elif error.too_large:
            run.refused.add(letter)

    def _remembered(self, run: WatchedRun, message: FakeMessage) -> None:
        """Check a record in the memory of resolved dead letters."""
        resolved = read_resolved([message], run.topic, run.rules.topic_id)
        covered = [each for each in self._all(run.topic) if each.position in resolved]
        if not covered:
            self._violate(f"{run} remembers {message.key()!r}, which is no dead letter")
        for letter in covered:
            letter.remembered = True
            if not letter.acked:
                self._violate(
                    f"{run} remembers {letter.position} as resolved before its copy is acked"
                )

    def committing(self, run: WatchedRun, progress: Mapping[TopicPartition, int]) -> None:
        """Check a process's commit of its progress."""
        run.uncommitted = 0
        for name, next_offset in progress.items():
            for offset, letter in self._letters_of(self._history.broker.log(*name)).items():
                if offset < next_offset:
                    self._check_passed(run, letter)

    def _check_passed(self, run: WatchedRun, letter: WatchedLetter) -> None:
        acked = letter in run.acked if run.restart else letter.acked
        letter.left = letter.left or not run.can_have(letter)
        if letter in run.acked and not letter.remembered:
            self._violate(f"{run} passes over {letter.position} before it is remembered")
        if run.wants(letter) and not acked and not letter.left:
            self._violate(f"{run} passes over {letter.position}, which was not put back")

    def ended(self, run: WatchedRun, progress: Mapping[TopicPartition, int] | None) -> None:
        """Record a process's end; without progress it was killed or failed."""
        self._at_work.remove(run)
        if progress is None:
            self._allow_repeats(run)
            return
        group = self._history.broker.group(run.rules.by)
        for name, next_offset in progress.items():
            committed = group.committed(name).next_offset
            if committed is None or committed < next_offset:
                self._violate(f"{run} ends at {name}@{next_offset}, committed is {committed}")

    def check_the_end(self, run: WatchedRun) -> None:
        """Check that no dead letter is left after a process has ended without faults."""
        for letter in self._all(run.topic):
            if run.wants(letter) and not letter.left and not letter.acked:
                self._violate(f"{letter.position} is lost: no redrive has put it back")


def _is_copy_of(letter: WatchedLetter, copy: Copy) -> bool:
    """Return whether a copy may be of this dead letter, judging by its headers."""
    said = dict(copy.headers)
    theirs = letter.headers
    first = letter.record.first.message
    if copy.key != first.key() or (copy.value != first.value()):
        return False
    return all(said.get(name) == theirs.get(name) for name in (*_GOES_ALONG, names.TAGS))


def _wrong(letter: WatchedLetter, copy: Copy, run: WatchedRun) -> list[str]:
    """Return the fault of a copy that is put back."""
    first = letter.record.first.message
    found = differences(first, copy.key, copy.value, copy.headers)
    said = dict(copy.headers)
    found.extend(f"header {name} came along" for name in _STAYS_BEHIND if name in said)
    redrives = count(said.get(names.REDRIVES))
    if redrives != letter.record.redrives + 1:
        found.append(f"{names.REDRIVES} is {redrives} after {letter.record.redrives}")
    to = run.rules.to
    number = letter.record.hop.origin.partition
    if number < to.partitions and copy.partition != number:
        found.append(f"partition {copy.partition} instead of its lane's")
    return found
