"""The section ``audit``: which facts about records are counted, and where the counts go."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about
from window_consumer.config.problems import Problem

_SHORTEST_S = 1.0
_LONGEST_S = 24 * 3600.0


@frozen(kw_only=True)
class AuditConfig:
    """The message audit: counts of records by outcome, to compare with what was sent."""

    enabled: bool = field(
        default=False,
        metadata=about(
            "Whether records are counted by outcome.",
            kind=kinds.boolean(),
            reason="it needs a directory that outlives the process, and time for each record",
        ),
    )
    directory: str | None = field(
        default=None,
        metadata=about(
            "Where counts are written first, each process in its own subdirectory. It must "
            "outlive the process: the next one ships the remaining counts. A relative path "
            "starts at the configuration file's directory.",
            kind=kinds.text("a directory"),
            default="none: required with enabled: true",
        ),
    )
    bucket: float = field(
        default=60.0,
        metadata=about(
            "How much time one count covers, by the producer's timestamp. All processes that "
            "count records of a topic must use the same value.",
            kind=kinds.duration(_SHORTEST_S, _LONGEST_S),
            reason="few enough counts to keep for years, but a loss is dated to the minute",
        ),
    )
    ids: bool = field(
        default=False,
        metadata=about(
            "Whether checksums of the records' ids are kept, which detect equal counts of "
            "different records.",
            kind=kinds.boolean(),
            reason="it reads the headers of each record, which costs more than everything else",
        ),
    )
    topic: str = field(
        default="wc.audit",
        metadata=about(
            "The topic that counts are shipped to. It is created if it is missing and "
            "`topics.create` allows it; until it exists, counts stay in the directory.",
            kind=kinds.kafka_name("topic"),
            reason="one for all applications that read and write the same topics",
        ),
    )
    fsync: bool = field(
        default=False,
        metadata=about(
            "Whether each count is on disk before its commit is sent.",
            kind=kinds.boolean(),
            reason="without it, counts are lost only when the machine dies, not the process",
        ),
    )


def conflicts(audit: AuditConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield missing keys."""
    if audit.enabled and audit.directory is None:
        message = "is missing: counts are written there first, as in directory: /var/lib/shop/audit"
        yield Problem(("directory",), message)
    elif given and "enabled" not in given:
        message = "is missing, and without it nothing is counted: write enabled: true"
        yield Problem(("enabled",), message)
