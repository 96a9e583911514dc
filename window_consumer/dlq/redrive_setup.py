"""Sets up a redrive: configuration, cluster, topics, clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any

from attrs import frozen

from window_consumer.config import LoadedConfig, TopicNames, WorkerConfig
from window_consumer.dlq.conditions import holds
from window_consumer.dlq.dead_letter import read_dead_letter
from window_consumer.dlq.redrive import BATCH_RECORDS, Redrive, RedriveCounts, RedriveRules
from window_consumer.dlq.redrive_state import Resolved, read_resolved
from window_consumer.dlq.redrive_topics import RedriveTopics, TopicSearch
from window_consumer.dlq.source import ClusterView, DeadLetterSource
from window_consumer.kafka.group_progress import GroupProgress
from window_consumer.kafka.log_writer import LogWriter, PlainWriter, TransactionalWriter
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.conditions.expressions import Expression
from window_consumer.model.errors import MissingTopicError, UsageError
from window_consumer.model.record import Message, TopicPartition
from window_consumer.plan.clients import Clients, CopyTarget
from window_consumer.plan.feature import CopyWriters
from window_consumer.plan.topics.command_topics import CommandTopics, refuse_broadcast
from window_consumer.plan.topics.patterns import matching_topics
from window_consumer.runtime.clock import SystemClock

_BATCH_BYTES = 1_000_000
"""librdkafka's default of batch.size."""


@frozen
class RedriveRequest:
    """The user's options for a redrive."""

    to_source: bool = False
    where: Expression | None = None
    max_redrives: int = 3
    rate: float | None = None
    dry_run: bool = False
    transactional: bool = False
    restart: bool = False
    batch_records: int = BATCH_RECORDS


@frozen
class RedriveJob:
    """The dead letters of one topic of one worker to put back."""

    worker: str
    topics: RedriveTopics
    request: RedriveRequest
    target: CopyTarget
    group: str
    """The consumer group that holds the progress: named after source, condition and target."""

    @property
    def clients(self) -> Clients:
        """The clients of the worker's cluster."""
        return self.target.clients

    def as_json(self) -> dict[str, Any]:
        """Return plain values that identify it."""
        return {
            "worker": self.worker,
            "topic": self.topics.source,
            "dead_letters": self.topics.dead_letters.name,
            "to": self.topics.to.topic,
            "progress_group": self.group,
            "dry_run": self.request.dry_run,
        }

    def run(
        self, counts: RedriveCounts, stop_asked: Callable[[], bool], copy_writers: CopyWriters
    ) -> bool:
        """Put them back; return True at the end. Updates ``counts`` while it runs."""
        request, topics, clients = self.request, self.topics, self.clients
        access = (self.group, clients.log, clients.oauth_token)
        with ExitStack() as open_clients:
            writer: LogWriter | None = None
            if not request.dry_run:
                kind = TransactionalWriter if request.transactional else PlainWriter
                most = min(_BATCH_BYTES, topics.max_message_bytes)
                plain = kind(clients.producer, *access, max_batch_bytes=most)
                open_clients.callback(plain.close)
                writer = open_clients.enter_context(copy_writers(self.target, plain))
            reader = open_clients.enter_context(self._reader())
            resolved = Resolved() if request.restart else self._resolved(reader)
            letters = open_clients.enter_context(GroupProgress(clients.consumer, *access))
            letters.begin(topics.dead_letters.name, self._mark(), restart=request.restart)
            redrive = Redrive(
                rules=self._rules(),
                letters=letters,
                outlet=writer,
                finish=(lambda: None) if writer is None else partial(writer.finish, letters),
                fetch=partial(_fetched, reader),
                clock=SystemClock(),
                resolved=resolved,
                counts=counts,
            )
            return redrive.run(stop_asked=stop_asked)

    def _rules(self) -> RedriveRules:
        return RedriveRules(
            to=self.topics.to,
            state_topic=self.topics.state,
            by=self.group,
            topic_id=self.topics.dead_letters.topic_id,
            max_redrives=self.request.max_redrives,
            rate=self.request.rate,
            matches=_condition(self.request.where),
            batch_records=self.request.batch_records,
        )

    def _mark(self) -> str:
        return f"wcr1.{self.topics.dead_letters.topic_id or ''}"

    def _reader(self) -> TopicReader:
        clients = self.clients
        return TopicReader(
            clients.consumer, clients.log, group=self.group, oauth_token=clients.oauth_token
        )

    def _resolved(self, reader: TopicReader) -> Resolved:
        """Return the dead letters that this and other redrives have put back."""
        if not self.topics.remembers:
            return Resolved()
        records = chain.from_iterable(reader.read(reader.spans(self.topics.state)))
        dead_letters = self.topics.dead_letters
        return read_resolved(records, dead_letters.name, dead_letters.topic_id)


def _fetched(reader: TopicReader, topic: str, partition: int, offset: int) -> Message | None:
    try:
        return reader.at(TopicPartition(topic, partition), offset)
    except MissingTopicError:
        return None


def _condition(where: Expression | None) -> Callable[[Message], bool] | None:
    if where is None:
        return None
    now_ms = SystemClock().wall_ms()
    return lambda message: holds(where, read_dead_letter(message), now_ms)


def redrive_jobs(
    loaded: LoadedConfig,
    request: RedriveRequest,
    *,
    workers: Sequence[str] = (),
    topics: Sequence[str] = (),
    oauth_token: OauthToken | None = None,
    timeout_s: float = 30.0,
) -> list[RedriveJob]:
    """Return a job for each topic of the given workers and topics, or of all; create topics.

    ``topics`` are source topics or dead-letter topics. A source without a dead-letter topic has no
    job. A broker has ``timeout_s`` to answer. Raises UsageError for unknown names, and what the
    cluster denies.
    """
    known = loaded.config.workers
    for name in workers:
        if name not in known:
            names = ", ".join(known)
            raise UsageError(f"--worker {name}: there is no such worker; there are {names}")
        refuse_broadcast(loaded, known[name])
    jobs, seen = [], set()
    for name in workers or known:
        worker = known[name]
        if worker.is_broadcast:
            continue
        clients = Clients.connect(loaded, worker, oauth_token, timeout_s)
        search = TopicSearch(
            loaded, worker, clients.cluster, to_source=request.to_source, dry=request.dry_run
        )
        for source in _sources(loaded, worker, clients):
            dead_letters = TopicNames(worker, loaded.config.topics).dlq(source)
            if topics and not {source, dead_letters} & set(topics):
                continue
            seen |= {source, dead_letters}
            found = search.of(source)
            if found is not None:
                progress = _group(worker, found, request)
                CommandTopics(loaded, worker, clients.cluster).check_group(progress)
                target = CopyTarget(
                    loaded, clients, worker.group, found.to.topic, "redriven", request.transactional
                )
                jobs.append(RedriveJob(name, found, request, target, progress))
    strange = [name for name in topics if name not in seen]
    if strange:
        raise UsageError(f"--topic {strange[0]}: no worker reads it: see workers.*.topics")
    return jobs


def _sources(loaded: LoadedConfig, worker: WorkerConfig, clients: Clients) -> list[str]:
    """Return the topics that the worker reads, as the configuration names them.

    If only decorators name them, derive them from the group's dead-letter topics.
    """
    if worker.topics:
        return list(worker.topics)
    names = clients.cluster.topic_names()
    if worker.patterns:
        return matching_topics(loaded.config, worker, names)
    place = ClusterView(worker, clients.consumer, clients.admin)
    found = DeadLetterSource((place,), (), loaded.config).topics_at(place, names)
    return [source for _, source in found if source is not None]


def _group(worker: WorkerConfig, topics: RedriveTopics, request: RedriveRequest) -> str:
    """Name the progress group: an equal redrive resumes, a different one starts over."""
    named = [topics.dead_letters.name, str(request.where or ""), topics.to.topic]
    digest = sha256(json.dumps([*named, request.max_redrives]).encode()).hexdigest()
    return f"{worker.group}.redrive.{digest[:12]}"
