"""Topics by patterns: which of the cluster's topics a worker should read."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from window_consumer.config import ENTRY, Config, WorkerConfig


def matching_topics(config: Config, worker: WorkerConfig, names: Sequence[str]) -> list[str]:
    """Return those of the cluster's topics that a worker's patterns mean."""
    copies = {
        copy
        for each in config.workers.values()
        for name in names
        for copy in (
            *each.ladder_topics(name, config.topics),
            each.retry_topic(name, ENTRY, config.topics),
        )
    }
    return matching(worker.patterns, names, copies)


def matching(patterns: Sequence[str], names: Sequence[str], copies: Container[str]) -> list[str]:
    """Return the topics that a pattern is found in; topics for copies never match.

    Patterns are searched here, not by the broker: the two group protocols disagree about what
    matches. Topics for copies are those in ``copies`` (ours), and whatever ends in ``.dlq`` or
    ``.retry.<level>`` behind a group and the name of a topic that exists, whoever made it. What
    ends in ``.dlq.state`` and the cluster's internal topics do not match either.
    """
    there = set(names)
    compiled = [re.compile(pattern) for pattern in patterns]
    return [
        name
        for name in names
        if any(pattern.search(name) for pattern in compiled)
        and not name.startswith("__")
        and name not in copies
        and not _looks_like_a_copy(name, there)
    ]


def _looks_like_a_copy(name: str, there: Container[str]) -> bool:
    """Tell whether ``<group>.<topic>`` stands before the ending; both may contain dots."""
    parts = name.split(".")
    if parts[-2:] == ["dlq", "state"]:
        return True  # a group's memory of resolved dead letters
    if parts[-1] == "dlq":
        middle = parts[:-1]
    elif parts[-2:-1] == ["retry"]:
        middle = parts[:-2]
    else:
        return False
    return any(".".join(middle[start:]) in there for start in range(1, len(middle)))
