"""The park topic: the copies of parked records, and reading the ladder's topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Final

from attrs import frozen

from window_consumer.config import TopicNames, TopicsConfig
from window_consumer.engine.commits.commit_metadata import decode, is_of_earlier_topic, topic_hash
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.copy_record import Target, place_of
from window_consumer.engine.turn import CopyTo
from window_consumer.kafka.group_progress import CommittedMark, GroupProgress
from window_consumer.kafka.log_times import offsets_at
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.offset_ranges import Span
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition
from window_consumer.model.record_identity import origin_in
from window_consumer.parking.dead_head import DeadHeads
from window_consumer.parking.scans import LadderContents, LadderCopy
from window_consumer.plan.topics.prepared_worker import PreparedWorker

_KEPT = names.KeptHeaders((names.KEPT_ON_FOREIGN_TOPICS - {names.ID}) | {names.HEADERS_LOST})

_SOURCE: Final = names.ORIGINAL_TOPIC
_PARTITION: Final = names.ORIGINAL_PARTITION
_OFFSET: Final = names.ORIGINAL_OFFSET
_TOPIC_ID: Final = names.ORIGINAL_TOPIC_ID

_BATCH: Final = 1000
"""Small enough that most batches are freed before Python's garbage collector visits their
headers."""


@frozen
class ParkTopics:
    """The park topics and ladders of one worker. Any thread may use them."""

    worker: PreparedWorker
    names: TopicsConfig
    oauth_token: OauthToken | None = None

    @property
    def are_left(self) -> bool:
        """Whether the worker reads park topics, which may hold records of an earlier setting."""
        worker, config = self.worker, self.worker.plan.config
        return any(
            TopicNames(config, self.names).park(each) in worker.reads for each in worker.topics
        )

    # ---- copies

    def park(self, partition: Partition, message: Message) -> CopyTo:
        """Return the copy of a record of the source for its park topic."""
        source = partition.name.topic
        target = self.worker.ladders[source].park
        if target is None:
            raise LookupError(f"{source} has no park topic")
        return parked(partition, message, target, self.worker.plan.config.group)

    # ---- scans

    def home_of(self, name: TopicPartition) -> TopicPartition | None:
        """See ``LadderReader``."""
        level = self.worker.retry_levels.get(name.topic)
        home = name if level is None else TopicPartition(level.source, name.partition)
        source = self.worker.described.get(home.topic)
        return home if source is not None and home.partition < source.partitions else None

    def ladder_of(self, home: TopicPartition) -> Collection[TopicPartition]:
        """See ``LadderReader``."""
        worker = self.worker
        return [
            TopicPartition(topic, home.partition)
            for topic in sorted(worker.reads)
            if worker.retry_levels[topic].source == home.topic
            and topic in worker.described
            and home.partition < worker.described[topic].partitions
        ]

    def is_level(self, name: TopicPartition) -> bool:
        """See ``LadderReader``."""
        return self.worker.retry_levels[name.topic].level is not None

    def read(self, partitions: Collection[TopicPartition]) -> LadderContents:
        """See ``LadderReader``."""
        if not partitions:
            return {}
        worker, group = self.worker, self.worker.plan.config.group
        copies = _Copies(self.home_of)
        with GroupProgress(worker.plan.consumer, group, worker.log, self.oauth_token) as progress:
            standing = progress.standing(partitions)
            # Queried afterwards, so that no record before the committed offset is beyond it.
            ends = worker.cluster.log_ends(list(partitions))
            firsts = self._firsts(standing, ends)
            spans = {name: Span(firsts[name], ends[name]) for name in partitions}
            spans = {name: span for name, span in spans.items() if span.count}
            if not spans:
                return {}
            # A killed member's open transaction may be in front of committed copies.
            progress.start(spans, {}, awaits_transactions=True)
            while messages := progress.read(_BATCH):
                copies.add(messages)
        found = {name: each for name, each in copies.found.items() if each}
        return self._marked(found) if found and self._follows else found

    def _firsts(
        self, standing: Mapping[TopicPartition, CommittedMark], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return where the worker begins: like the worker, ignore a commit of another log."""
        notes = {name: decode(each.mark) for name, each in standing.items() if ends[name]}
        named = {name: note for name, note in notes.items() if note is not None and note.topic_hash}
        topics = self.worker.cluster.topics(sorted({name.topic for name in named}))
        firsts = {
            name: each.offset if 0 <= each.offset <= ends[name] else 0
            for name, each in standing.items()
        }
        for name, note in named.items():
            now = topic_hash(topics[name.topic].topic_id) if name.topic in topics else 0
            if is_of_earlier_topic(note, standing[name].offset, now):
                firsts[name] = 0
        return firsts

    @property
    def _follows(self) -> bool:
        return self.worker.plan.config.retry.park.on_dead == "follow"

    def _marked(self, found: LadderContents) -> LadderContents:
        """Return copies with the dead heads that they follow."""
        worker, since = self.worker, min(each.written for all_ in found.values() for each in all_)
        homes = {name: home for name in found if (home := self.home_of(name)) is not None}
        targets = {worker.ladders[home.topic].target(None) for home in homes.values()}
        numbers = {home.partition for home in homes.values()}
        group, heads = worker.plan.config.group, DeadHeads()
        with TopicReader(
            worker.plan.consumer, worker.log, group=group, oauth_token=self.oauth_token
        ) as reader:
            for target in targets:
                # If its number has no partition there, a dead letter may be in any partition.
                everywhere = max(numbers) >= target.partitions
                logs = {
                    name: log
                    for name, log in reader.spans(target.topic).items()
                    if everywhere or name.partition in numbers
                }
                begins = offsets_at(reader, logs, int(since))
                spans = {name: Span(begins[name], log.end) for name, log in logs.items()}
                for message in chain.from_iterable(reader.read(spans)):
                    headers = dict(message.headers() or ())
                    heads.add(message.key(), headers, message.timestamp()[1])
        return {name: heads.marked(home, found[name]) for name, home in homes.items()}


class _Copies:
    """The copies of ladders' own records, by partition of the ladder.

    A start waits until all are read, so values that many copies share are decoded only once.
    """

    def __init__(self, home_of: Callable[[TopicPartition], TopicPartition | None]):
        self.found: dict[TopicPartition, list[LadderCopy]] = {}
        self._home_of = home_of
        self._lists: dict[tuple[object, ...], list[LadderCopy] | None] = {}
        """By a copy's partition and its headers about the source; None for strays."""

    def add(self, messages: Sequence[Message]) -> None:
        """Add the copies that belong to the ladder and have a lane."""
        lists = self._lists
        for message in messages:
            headers = dict(message.headers() or ())
            value_of, topic, partition = headers.get, message.topic(), message.partition()
            place = topic, partition, value_of(_SOURCE), value_of(_PARTITION)
            try:
                copies = lists[place]
            except KeyError:
                copies = self._list_of(TopicPartition(topic, partition), headers)
                lists[place] = copies
            lane, offset = message.key(), count(value_of(_OFFSET))
            if copies is not None and lane is not None and offset is not None:
                at, written = message.offset(), message.timestamp()[1]
                copies.append(LadderCopy(at, lane, offset, written, None, value_of(_TOPIC_ID)))

    def _list_of(
        self, name: TopicPartition, headers: Mapping[str, bytes | None]
    ) -> list[LadderCopy] | None:
        origin = origin_in({**headers, names.ORIGINAL_OFFSET: b"0"})
        if origin is None or TopicPartition(origin.topic, origin.partition) != self._home_of(name):
            return None
        return self.found.setdefault(name, [])


def parked(partition: Partition, message: Message, target: Target, group: str) -> CopyTo:
    """Return the copy of an uncalled source record.

    It keeps its partition's number.
    """
    name, hop = partition.name, partition.retry_level.hop_of(message)
    headers: list[tuple[str, bytes | None]] = [
        *names.each_once(_KEPT.of(message.headers() or ())),
        (names.ID, hop.record_id),
        (names.ORIGINAL_TOPIC, name.topic.encode()),
        (names.ORIGINAL_PARTITION, b"%d" % name.partition),
        (names.ORIGINAL_OFFSET, b"%d" % hop.offset),
        (names.FORMAT, names.FORMAT_VERSION),
        (names.GROUP, group.encode()),
        (names.REASON, names.Reason.PARKED.encode()),
        (names.ATTEMPTS, b"0"),
    ]
    if hop.timestamp is not None:
        headers.append((names.ORIGINAL_TIMESTAMP, b"%d" % hop.timestamp))
    if partition.topic_id:
        headers.append((names.ORIGINAL_TOPIC_ID, partition.topic_id.encode()))
    place = place_of(name.partition, target.partitions)
    copy = Copy(target.topic, place, message.key(), message.value(), headers)
    return CopyTo(copy, names.Reason.PARKED, Outcome.PARKED)
