"""Counts of dead letters by reason, error, place of the error, version and age."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field

from window_consumer.dlq.dead_letter import DeadLetter

UNKNOWN = "unknown"

_HOUR_MS = 3_600_000
AGES: tuple[tuple[str, float], ...] = (
    ("under 1h", _HOUR_MS),
    ("1h to 1d", 24 * _HOUR_MS),
    ("1d to 7d", 7 * 24 * _HOUR_MS),
    ("over 7d", float("inf")),
)
"""Names of age ranges, each with its exclusive end in milliseconds."""


@define
class Fingerprint:
    """Errors of one class from one place."""

    error_class: str
    count: int = 0
    latest: str = ""
    """The id of the latest failure, as an example."""
    latest_ms: int = -1


@define
class DeadLetterCounts:
    """The counts of one topic. All except ``total`` and ``resolved`` cover open dead letters only.

    If the redrive state cannot be read, all count as open, and ``unknown`` says why.
    """

    total: int = 0
    resolved: int = 0
    unknown: str | None = None
    reasons: Counter[str] = field(factory=Counter)
    classes: Counter[str] = field(factory=Counter)
    versions: Counter[str] = field(factory=Counter)
    ages: Counter[str] = field(factory=Counter)
    fingerprints: dict[str, Fingerprint] = field(factory=dict)
    oldest_ms: int | None = None
    """When the oldest open one failed."""

    @property
    def open(self) -> int:
        """Return the number of unresolved dead letters."""
        return self.total - self.resolved

    def add(self, letter: DeadLetter, now_ms: int, *, resolved: bool) -> None:
        """Count a dead letter."""
        self.total += 1
        if resolved:
            self.resolved += 1
            return
        error_class = letter.error_class or UNKNOWN
        self.reasons[letter.reason or UNKNOWN] += 1
        self.classes[error_class] += 1
        self.versions[letter.app_version or UNKNOWN] += 1
        failed_at = letter.failed_at
        self.ages[_age(failed_at, now_ms)] += 1
        if failed_at is not None and (self.oldest_ms is None or failed_at < self.oldest_ms):
            self.oldest_ms = failed_at
        found = self.fingerprints.setdefault(
            letter.fingerprint or UNKNOWN, Fingerprint(error_class)
        )
        found.count += 1
        if (failed_at or 0) >= found.latest_ms:
            found.latest, found.latest_ms = letter.id, failed_at or 0

    def as_json(self) -> dict[str, Any]:
        """Return plain values; times in milliseconds since 1970."""
        return {
            "total": self.total,
            "open": None if self.unknown else self.open,
            "resolved": None if self.unknown else self.resolved,
            "reasons": dict(self.reasons.most_common()),
            "classes": dict(self.classes.most_common()),
            "fingerprints": {
                name: {"class": each.error_class, "count": each.count, "latest": each.latest}
                for name, each in self.by_fingerprint()
            },
            "versions": dict(self.versions.most_common()),
            "ages": {name: self.ages[name] for name in (*map(_name, AGES), UNKNOWN)},
            "oldest_ms": self.oldest_ms,
        }

    def by_fingerprint(self) -> list[tuple[str, Fingerprint]]:
        """Return the fingerprints, most frequent first."""
        return sorted(self.fingerprints.items(), key=lambda item: -item[1].count)


def _age(failed_at: int | None, now_ms: int) -> str:
    if failed_at is None:
        return UNKNOWN
    return next(name for name, end in AGES if now_ms - failed_at < end)


def _name(age: tuple[str, float]) -> str:
    return age[0]
