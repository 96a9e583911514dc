"""Topics by patterns: the cluster's topics that a worker should read."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from window_consumer.config import ENTRY, Config, TopicNames, WorkerConfig
from window_consumer.config.units import DURATION_UNITS

_ANY_TOPIC, _ANY_DELAY = "\0", "\1"  # cannot occur in a name
_WILD = {
    _ANY_TOPIC: ".+",
    _ANY_DELAY: f"(?:{ENTRY}|[0-9]+(?:[.][0-9]+)?(?:{'|'.join(DURATION_UNITS)}))",
}


def matching_topics(config: Config, worker: WorkerConfig, names: Sequence[str]) -> list[str]:
    """Return the cluster's topics that match a worker's patterns."""
    with_ladders = [each for each in config.workers.values() if not each.is_broadcast]
    copies = {
        copy
        for own in (TopicNames(each, config.topics) for each in with_ladders)
        for name in names
        for copy in (*own.ladder(name), own.retry(name, ENTRY), own.park(name))
    }
    for each in with_ladders:
        copies.update(_own_of_topics_that_are_gone(config, each, names))
    return matching(worker.patterns, names, copies)


def _own_of_topics_that_are_gone(
    config: Config, worker: WorkerConfig, names: Sequence[str]
) -> list[str]:
    """Return the topics of a worker's ladder by the form of their names: their source may be gone.

    The template must contain a word of its own: with a form like ``<group>.<topic>``, sources would
    pass for copies.
    """
    topics = config.topics
    own = TopicNames(worker, topics)
    forms = (
        (topics.dlq, own.dlq(_ANY_TOPIC)),
        (topics.retry, own.retry(_ANY_TOPIC, _ANY_DELAY)),
        (topics.park, own.park(_ANY_TOPIC)),
    )
    patterns = [
        re.compile(
            "".join(_WILD.get(part) or re.escape(part) for part in re.split("([\0\1])", form))
        )
        for template, form in forms
        if re.search(r"[^\W_]", re.sub(r"\{\w+\}", "", template))
    ]
    return [name for name in names if any(each.fullmatch(name) for each in patterns)]


def matching(patterns: Sequence[str], names: Sequence[str], copies: Container[str]) -> list[str]:
    """Return the topics that match a pattern; topics for copies never do.

    Patterns are searched here and not by the broker, because the two group protocols disagree about
    what matches. Topics for copies are those in ``copies`` (ours), and all names of the form
    ``<group>.<topic>`` with the ending ``.dlq``, ``.park`` or ``.retry.<level>`` where the topic
    exists, whoever created them. Names that end in ``.dlq.state`` and the cluster's internal topics
    do not match either.
    """
    there = set(names)
    compiled = [re.compile(pattern) for pattern in patterns]
    return [
        name
        for name in names
        if any(pattern.search(name) for pattern in compiled)
        and not name.startswith("__")
        and name not in copies
        and not _is_copy_name(name, there)
    ]


def _is_copy_name(name: str, there: Container[str]) -> bool:
    """Return whether ``<group>.<topic>`` precedes the ending; both may contain dots."""
    parts = name.split(".")
    if parts[-2:] == ["dlq", "state"]:
        return True  # records a group's resolved dead letters
    if parts[-1] in {"dlq", "park"}:
        middle = parts[:-1]
    elif parts[-2:-1] == ["retry"]:
        middle = parts[:-2]
    else:
        return False
    return any(".".join(middle[start:]) in there for start in range(1, len(middle)))
