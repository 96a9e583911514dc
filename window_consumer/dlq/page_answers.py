"""The page's data on dead letters, as plain values; the commands print the same."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from window_consumer.dlq.conditions import holds, parse_where
from window_consumer.dlq.counts import DeadLetterCounts
from window_consumer.dlq.dead_letter import DeadLetter
from window_consumer.dlq.reader import DeadLetterTopic, DeadLetterTopics, view_of
from window_consumer.dlq.source import DeadLetterSource
from window_consumer.model.conditions.expressions import Expression
from window_consumer.plan.feature import PageContext

MOST_LETTERS: Final = 100
"""The page lists the latest matches, up to this many; the counts cover all."""

MOST_OTHERS: Final = 1_000

_MOST_JSON: Final = 256 * 1024
"""Bytes of a key or value that are sent to a page."""

TIMEOUT_S: Final = 10.0

_NO_VALUES: Final = "admin.values is false"

_LISTED: Final = (
    *("dead_letter", "id", "written_by", "reason", "error_class", "error_message", "fingerprint"),
    *("group", "handler", "app_version", "attempts", "redrives"),
)


@frozen
class LetterSelection:
    """The dead letters that a query selects."""

    topics: tuple[str, ...] = ()
    """As the option ``--topic``; empty for all of the workers."""
    where: str = ""

    @property
    def condition(self) -> Expression | None:
        """The condition; raises ExpressionError."""
        return parse_where(self.where) if self.where.strip() else None


class DeadLetterAnswers:
    """Answers queries, each with its own clients. Any thread may use it.

    Raises WindowConsumerErrors, and ExpressionError for a condition.
    """

    def __init__(self, context: PageContext, *, values: bool, timeout_s: float = TIMEOUT_S):
        """``values`` permits showing the values of records."""
        self._context = context
        self._values = values
        self._timeout_s = timeout_s

    def find(self, selection: LetterSelection) -> dict[str, Any]:
        """Return the counts of each topic, and the latest matching dead letters.

        ``others`` are topics that may hold dead letters of other frameworks.
        """
        where, now_ms = selection.condition, round(time.time() * 1000)
        counted: dict[str, Any] = {}
        latest: list[dict[str, Any]] = []
        with self.open(selection.topics) as topics:
            for topic in topics.topics:
                counts, letters = _scan(topic, where, now_ms)
                about = {"worker": topic.worker, "source": topic.source, "unknown": counts.unknown}
                counted[topic.name] = about | counts.as_json()
                latest += [self._row(topics, *each) for each in letters]
            others = sorted(topics.others - counted.keys())[:MOST_OTHERS]
        latest.sort(key=lambda each: -(each["failed_at"] or 0))
        return {"topics": counted, "others": others, "letters": latest[:MOST_LETTERS]}

    def show(self, name: str, topics: Sequence[str]) -> dict[str, Any]:
        """Return a dead letter, masked; raises UsageError if there is none of that name."""
        with self.open(topics) as found:
            *others, letter = found.find(name)
            view = found.view(letter, self._context.config.mask_rules, _MOST_JSON)
        if not self._values and view["value"] is not None:
            hidden = {"form": "hidden", "why": _NO_VALUES}
            view["value"] = {"bytes": view["value"]["bytes"], **hidden}
        return {**view, "also": [str(each.position) for each in others]}

    def open(self, topics: Sequence[str]) -> DeadLetterTopics:
        """Return a context with the topics."""
        context = self._context
        source = DeadLetterSource.of_loaded(
            context.loaded, context.oauth_token, context.value_decoder, topics=topics
        )
        return DeadLetterTopics(source, timeout_s=self._timeout_s)

    def _row(
        self,
        topics: DeadLetterTopics,
        letter: DeadLetter,
        resolved: bool,  # noqa: FBT001 - private
    ) -> dict[str, Any]:
        rules = self._context.config.mask_rules
        mask = rules.of([letter.position.topic, topics.origin_of(letter)])
        view = view_of(letter, mask, _MOST_JSON)
        listed = {name: view[name] for name in _LISTED}
        return {**listed, "failed_at": letter.failed_at, "resolved": resolved}


def _scan(
    topic: DeadLetterTopic, where: Expression | None, now_ms: int
) -> tuple[DeadLetterCounts, list[tuple[DeadLetter, bool]]]:
    """Return the counts of the matches, and the latest of them, each with its resolution."""
    resolved, unknown = topic.resolved_if_known()
    counts = DeadLetterCounts(unknown=unknown)
    latest: list[tuple[int, int, DeadLetter, bool]] = []
    for number, letter in enumerate(topic.letters()):
        if not holds(where, letter, now_ms):
            continue
        is_resolved = letter.position in resolved
        counts.add(letter, now_ms, resolved=is_resolved)
        entry = letter.failed_at or 0, number, letter, is_resolved
        if len(latest) < MOST_LETTERS:
            heapq.heappush(latest, entry)
        else:
            heapq.heappushpop(latest, entry)
    return counts, [each[2:] for each in latest]
