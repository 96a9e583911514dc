"""Rules about the topics that workers read, and the names of topics for their copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from window_consumer.config import names
from window_consumer.config.problems import Problem
from window_consumer.config.sections import TopicsConfig
from window_consumer.config.sections.topic_names import TopicNames
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree

_TWICE: Final = """\
{what} is also read by the worker {other} of the same group ({where}); each record reaches only one
  to run both handlers on every record, give one of the workers a group of its own
  to run one handler, merge the workers or remove the topic from one of them"""

_ITS_OWN: Final = """\
has the name of a dead-letter topic of this worker
  failed records would be read again: remove the topic and redrive dead letters instead
  or, if it is not one, choose another group or another template for topics.dlq"""

_READ_ANYWAY: Final = """\
has the name of a {kind} topic of this worker
  {kind} topics are read without being listed: remove the topic
  or, if it is not one, choose another group or another template for topics.{kind}"""

_SHORTER: Final = "choose a shorter group, or another template for topics.{key}"


def overlap(worker: WorkerConfig, other: WorkerConfig, tree: Tree) -> Iterator[Problem]:
    """Yield the topics that two workers of one group would both read."""
    if worker.group != other.group or worker.is_broadcast:
        return
    for key, expression, shared in _shared(worker, other):
        index = getattr(worker, key).index(expression)
        path: Path = ("workers", worker.name, key, index)
        other_key = ("workers", other.name, "topics" if other.topics else "patterns")
        where = tree.origin(other_key).where
        yield Problem(path, _TWICE.format(what=shared, other=other.name, where=where))


def _shared(worker: WorkerConfig, other: WorkerConfig) -> Iterator[tuple[str, str, str]]:
    """Yield key and item of the worker's subscription, and what it shares with the other worker."""
    for topic in worker.topics:
        if topic in other.topics or any(re.search(p, topic) for p in other.patterns):
            yield "topics", topic, f"the topic {topic}"
    for pattern in worker.patterns:
        if pattern in other.patterns:
            yield "patterns", pattern, f"what {pattern} matches"
        for topic in other.topics:
            if re.search(pattern, topic):
                yield "patterns", pattern, f"the topic {topic}"


def ladder_topics(
    workers: list[WorkerConfig], topics: TopicsConfig, tree: Tree
) -> Iterator[Problem]:
    """Yield topics that are read twice or share a topic for copies, and wrong names of those."""
    owners: dict[str, tuple[WorkerConfig, str]] = {}
    for worker in workers:
        own = TopicNames(worker, topics)
        for index, topic in enumerate(worker.topics):
            path: Path = ("workers", worker.name, "topics", index)
            if _matches(own.dlq("{topic}"), topic):
                yield Problem(path, _ITS_OWN)
            if _matches(own.retry("{topic}", "{delay}"), topic):
                yield Problem(path, _READ_ANYWAY.format(kind="retry"))
            if worker.parks and _matches(own.park("{topic}"), topic):
                yield Problem(path, _READ_ANYWAY.format(kind="park"))
            yield from islice(_wrong_copies(worker, topic, topics, owners, tree), 1)


def _wrong_copies(
    worker: WorkerConfig,
    topic: str,
    topics: TopicsConfig,
    owners: dict[str, tuple[WorkerConfig, str]],
    tree: Tree,
) -> Iterator[Problem]:
    """Yield problems with the names of one topic's retry, park and dead-letter topics."""
    path: Path = ("workers", worker.name, "topics", worker.topics.index(topic))
    own = TopicNames(worker, topics)
    for name in own.ladder(topic):
        key, what = "retry", "retry"
        if name == own.dlq(topic):
            key, what = "dlq", "dead-letter"
        elif name == own.park(topic):
            key, what = "park", "park"
        wrong = names.wrong_name(name)
        if wrong is not None:
            yield Problem(path, f"its {what} topic {name} {wrong}; {_SHORTER.format(key=key)}")
        owner, source = owners.setdefault(name, (worker, topic))
        if (owner.group, source) != (worker.group, topic):
            yield Problem(
                path,
                f"its {what} topic {name} also belongs to {source} in the worker "
                f"{owner.name} ({tree.origin(('workers', owner.name)).where}); "
                f"choose another group, or another template for topics.{key}",
            )


def _matches(filled: str, topic: str) -> bool:
    """Return whether a template with its group filled in could produce a topic's name."""
    pieces = re.split(r"\{(?:topic|delay)\}", filled)
    return re.fullmatch(".+".join(map(re.escape, pieces)), topic) is not None
