"""Prepares wheels before their partitions begin, from files or else from Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple, Protocol

from window_consumer.delay.wheel.partition_files import WheelFolder, contained_in
from window_consumer.delay.wheel.rule import Admission
from window_consumer.delay.wheel.slot_files import OpenFiles
from window_consumer.delay.wheel.wheels import Wheels
from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.kafka.group_progress import GroupProgress
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.log_events import LogEvent
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.prepared_worker import PreparedWorker


class WheelReader(Protocol):
    """Reads the group's records and commits. Each call may take long and may raise anything."""

    def notes(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, CommitNote | None]:
        """Return the committed notes; None for partitions without a commit of ours."""

    def read(self, spans: Mapping[TopicPartition, Span], take: Callable[[Message], None]) -> None:
        """Pass the records of these spans to ``take``."""


class GroupWheelReader:
    """Reads for a worker's group."""

    def __init__(self, worker: PreparedWorker, oauth_token: OauthToken | None):
        self._worker = worker
        self._oauth_token = oauth_token

    def notes(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, CommitNote | None]:
        """See WheelReader."""
        worker, group = self._worker, self._worker.plan.config.group
        with GroupProgress(worker.plan.consumer, group, worker.log, self._oauth_token) as progress:
            found = progress.standing(names)
        notes = {name: decode(each.mark) for name, each in found.items()}
        return {
            name: note if note is not None and note.next_offset == found[name].offset else None
            for name, note in notes.items()
        }

    def read(self, spans: Mapping[TopicPartition, Span], take: Callable[[Message], None]) -> None:
        """See WheelReader."""
        worker = self._worker
        with TopicReader(
            worker.plan.consumer,
            worker.log,
            group=worker.plan.config.group,
            oauth_token=self._oauth_token,
        ) as reader:
            for message in chain.from_iterable(reader.read(spans)):
                take(message)


class _Request(NamedTuple):
    name: TopicPartition
    future: Future[None]


class WheelPreparation:
    """Opens wheels for one worker. Owner: poll thread; it reads on ``wc-delay-wheel``."""

    subject = "the wheel of what waits"

    def __init__(
        self,
        reader: WheelReader,
        directory: Path,
        wheels: Wheels,
        admission: Admission,
        role_of: Callable[[str], RetryTopicLevel],
    ):
        self._reader = reader
        self._directory = directory
        self._wheels = wheels
        self._admission = admission
        self._role_of = role_of
        """Returns the role of a topic of the worker."""
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        self._thread: Thread | None = None

    def begin(self, name: TopicPartition) -> Future[None]:
        """See PartitionPreparation."""
        self._wheels.remove(name)
        future: Future[None] = Future()
        self._requests.put(_Request(name, future))
        if self._thread is None:
            self._thread = Thread(target=self._run, name="wc-delay-wheel", daemon=True)
            self._thread.start()
        return future

    def remove(self, name: TopicPartition) -> None:
        """See PartitionPreparation."""
        self._wheels.remove(name)

    def open_empty(self, name: TopicPartition) -> WheelFolder:
        """Open the wheel of a partition without waiting records."""
        return self._open(name, None)

    # ---- on its own thread

    def _run(self) -> None:
        while True:
            requests = [self._requests.get()]
            while True:
                try:
                    requests.append(self._requests.get_nowait())
                except Empty:
                    break
            self.make_ready({each.name: each.future for each in requests})

    def make_ready(self, wanted: Mapping[TopicPartition, Future[None]]) -> None:
        """Open these wheels and complete their futures."""
        opened: dict[TopicPartition, WheelFolder] = {}
        waiting = dict(wanted)
        try:
            for name, note in self._reader.notes(list(wanted)).items():
                try:
                    opened[name] = self._open(name, note)
                except Exception as error:  # as below; the others continue
                    _fail(waiting.pop(name), error)
            self._read_missing(opened)
        except Exception as error:  # the preparation of the partitions reports it
            for folder in opened.values():
                folder.close()
            for future in waiting.values():
                _fail(future, error)
            return
        for name, future in waiting.items():
            if future.set_running_or_notify_cancel():
                self._wheels.prepare(name, opened[name])
                future.set_result(None)
            else:
                opened[name].close()

    def _open(self, name: TopicPartition, note: CommitNote | None) -> WheelFolder:
        return WheelFolder.open(self._directory, name, OpenFiles(1), note, self._wheels.wall_ms)

    def _read_missing(self, opened: Mapping[TopicPartition, WheelFolder]) -> None:
        missing = {name: each.missing for name, each in opened.items() if each.missing}
        if not missing:
            return
        of = {
            name: (contained_in(ranges), self._role_of(name.topic), opened[name].wheel)
            for name, ranges in missing.items()
        }
        began, count = time.monotonic(), 0

        def take(message: Message) -> None:
            nonlocal count
            is_missing, role, wheel = of[TopicPartition(message.topic(), message.partition())]
            if is_missing(message.offset()):
                count += 1
                record = self._admission.admit_again(role, message)
                if record is not None and record.second > wheel.fired:
                    wheel.add(record)

        spans = {name: Span(ranges[0][0], ranges[-1][1]) for name, ranges in missing.items()}
        self._reader.read(spans, take)
        LOGGER.info(
            "delay: read %d records for the wheels of %d partitions in %.1f s",
            count,
            len(missing),
            time.monotonic() - began,
            extra={"event": LogEvent.WHEEL_READ},
        )


def _fail(future: Future[None], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
