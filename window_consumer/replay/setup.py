"""Finds the topics of replays: those that a worker reads, and the group's entry topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from window_consumer.config import ENTRY, LoadedConfig, TopicNames, WorkerConfig
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import MissingTopicError, UsageError
from window_consumer.plan.clients import Clients
from window_consumer.plan.ladder_topics import DEFAULT_MAX_MESSAGE_BYTES, Model, new_entry
from window_consumer.plan.topics.command_topics import CommandTopics, refuse_broadcast
from window_consumer.plan.topics.patterns import matching_topics
from window_consumer.replay.job import ReplayJob, ReplayRequest, new_run
from window_consumer.replay.ranges import WantedIds


def worker_of(loaded: LoadedConfig, name: str) -> WorkerConfig:
    """Return a worker of the configuration; raise UsageError for an unknown or groupless one."""
    known = loaded.config.workers
    if name not in known:
        names = ", ".join(sorted(known))
        raise UsageError(f"--worker {name}: there is no such worker; there are {names}")
    refuse_broadcast(loaded, known[name])
    return known[name]


def sources_of(
    loaded: LoadedConfig, worker: WorkerConfig, clients: Clients, topics: Sequence[str]
) -> list[Topic]:
    """Return the topics that a worker reads, or those of ``topics``, as the cluster describes them.

    Raises UsageError for a topic that the worker does not read, and if only decorators name its
    topics; MissingTopicError for one that does not exist.
    """
    names = list(worker.topics)
    if worker.patterns:
        names = matching_topics(loaded.config, worker, clients.cluster.topic_names())
    if not names and not topics:
        raise UsageError(
            f"workers.{worker.name} names no topics: name the application (MODULE:APP), whose"
            " decorators do, or --topic"
        )
    for topic in topics:
        if names and topic not in names:
            raise UsageError(
                f"--topic {topic}: {worker.name} does not read it; it reads {', '.join(names)}"
            )
    wanted = list(dict.fromkeys(topics)) or names
    found = clients.cluster.topics(wanted)
    for name in wanted:
        if name not in found:
            raise MissingTopicError(f"{clients.cluster.bootstrap} has no topic {name}")
    return [found[name] for name in wanted]


def replay_jobs(
    loaded: LoadedConfig,
    request: ReplayRequest,
    *,
    worker: str,
    topics: Sequence[str] = (),
    oauth_token: OauthToken | None = None,
    timeout_s: float = 30.0,
) -> list[ReplayJob]:
    """Return a job with its range for each topic of the worker, or for those of ``topics``.

    Creates missing entry topics, except in a dry run. Raises UsageError for unknown names and for
    ranges without an offset, and the cluster's errors if it denies access.
    """
    config = worker_of(loaded, worker)
    clients = Clients.connect(loaded, config, oauth_token, timeout_s)
    sources = sources_of(loaded, config, clients, topics)
    if len(sources) > 1 and request.selection.offsets:
        listed = ", ".join(each.name for each in sources)
        raise UsageError(f"--from-offset: {worker} reads {listed}: choose one with --topic")
    wanted, names = request.selection.ids, frozenset(each.name for each in sources)
    found: set[str] = set()
    jobs = [
        _job(loaded, config, clients, source, request, WantedIds(wanted, source.name, names, found))
        for source in sources
    ]
    for job in jobs:
        job.inspect()
    cut_short = [job.last.name for job in jobs if job.last is not None and not job.last.is_over]
    run = max(cut_short, default=new_run())
    for job in jobs:
        job.plan(run, resumes=bool(cut_short))
    # If the rest of a run has been deleted, it is over.
    if not cut_short and not any(each.span.count for job in jobs for each in job.ranges.values()):
        raise UsageError("\n".join(["the range is empty:", *map(_emptiness, jobs)]))
    if not request.dry_run:
        for job in jobs:
            if job.ranges:
                _make_entry(job)
    return jobs


def _job(
    loaded: LoadedConfig,
    worker: WorkerConfig,
    clients: Clients,
    source: Topic,
    request: ReplayRequest,
    ids: WantedIds,
) -> ReplayJob:
    entry = TopicNames(worker, loaded.config.topics).retry(source.name, ENTRY)
    named: list[Any] = [source.name, entry, request.name, str(request.where or ""), request.new_ids]
    digest = sha256(json.dumps(named).encode()).hexdigest()
    group = f"{worker.group}.replay.{digest[:12]}"
    CommandTopics(loaded, worker, clients.cluster).check_group(group)
    return ReplayJob(
        worker,
        request,
        loaded,
        clients,
        source,
        entry,
        source.partitions,
        DEFAULT_MAX_MESSAGE_BYTES,
        group,
        ids,
    )


def _make_entry(job: ReplayJob) -> None:
    """Create the entry topic if it is missing; return its partitions and limits."""
    cluster, source = job.clients.cluster, job.source
    topics = CommandTopics(job.loaded, job.worker, cluster)
    there, hidden = topics.existing([source.name, job.entry])
    topics.check_rights(there, hidden, [(source.name, "READ"), (job.entry, "WRITE")])
    if job.entry not in there:
        model = Model.of(source, cluster.topic_config(source.name))
        new = new_entry(job.worker, source.name, model, job.loaded.config.topics)
        there.update(topics.make([new]))
        topics.check_rights(there, hidden, [(job.entry, "WRITE")])
    job.entry_partitions = there[job.entry].partitions
    limits = cluster.topic_config(job.entry)
    job.max_message_bytes = int(limits.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))


def _emptiness(job: ReplayJob) -> str:
    lines = []
    for name, each in job.ranges.items():
        first = each.span.first
        lost = "" if each.deleted is None else f"; retention has deleted those before {first}"
        lines.append(f"  {name}: no offsets from {first} on{lost}")
    return "\n".join(lines) or f"  {job.source.name} has none of these ids"
