"""The findings of ``doctor``: likely causes of lag, and their kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from window_consumer.model.record import TopicPartition

Figure = float | int | str | None


class CauseKind(StrEnum):
    """The kind of a cause; the names are stable."""

    BREAKER_OPEN = "breaker_open"
    HALTED = "halted"
    CANNOT_WRITE = "cannot_write"
    NOT_IN_GROUP = "not_in_group"
    REBALANCES = "rebalances"
    HOVERING = "hovering"
    POISON_RECORD = "poison_record"
    PARKED_KEYS = "parked_keys"
    STARVED = "starved"
    HOT_KEY = "hot_key"
    HOT_PARTITION = "hot_partition"
    RATE = "rate"
    GIL_BOUND = "gil_bound"
    LOOP_BOUND = "loop_bound"
    LOOP_BLOCKED = "loop_blocked"
    HANDLER_SLOW = "handler_slow"
    NO_CLIENTS = "no_clients"
    OUTBOX_WAITS = "outbox_waits"
    BROKER_AWAY = "broker_away"
    BROKER_SLOW = "broker_slow"
    FETCH_BOUND = "fetch_bound"
    NOBODY_READS = "nobody_reads"
    UNKNOWN = "unknown"


@frozen
class LikelyCause:
    """One likely cause."""

    kind: str
    """One of ``CauseKind``, or a feature's own."""
    worker: str
    sentence: str
    figures: Mapping[str, Figure]
    """The figures behind the sentence; seconds end in ``_s``, rates in ``_per_s``."""
    partition: TopicPartition | None = None
    where: str = field(default="", kw_only=True)
    """The process in words; empty if there is only one."""
    weight: float = field(default=0.0, kw_only=True)
    stack: str = field(default="", kw_only=True)


@frozen
class Diagnosis:
    """The result of a diagnosis."""

    causes: tuple[LikelyCause, ...]
    """The likeliest first; empty if nothing is wrong."""
    well: tuple[str, ...] = ()
    """A sentence for each observed worker without a problem."""
    notes: tuple[str, ...] = ()
    """Failed queries, with the reasons."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values; the names of causes and fields are stable."""
        return {
            "ok": not self.causes,
            "causes": [
                {
                    "cause": str(cause.kind),
                    "worker": cause.worker,
                    "process": cause.where or None,
                    "partition": None if cause.partition is None else str(cause.partition),
                    "sentence": cause.sentence,
                    "figures": dict(cause.figures),
                    **({"stack": cause.stack} if cause.stack else {}),
                }
                for cause in self.causes
            ],
            "well": list(self.well),
            "notes": list(self.notes),
        }

    def as_text(self) -> Iterator[str]:
        """Yield readable lines."""
        for cause in self.causes:
            of = f" of {cause.where}" if cause.where else ""
            yield f"{cause.worker}{of}: {cause.sentence}"
            yield from (f"    {line}" for line in cause.stack.splitlines())
        yield from self.well
        yield from (f"note: {note}" for note in self.notes)

    def joined(self, other: Diagnosis) -> Diagnosis:
        """Return both, the likeliest causes first."""
        causes = sorted((*self.causes, *other.causes), key=lambda cause: -cause.weight)
        well, notes = (*self.well, *other.well), (*self.notes, *other.notes)
        return Diagnosis(tuple(causes), well, notes)
