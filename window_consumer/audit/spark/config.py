"""The section ``audit`` of pipeline.yaml."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import Section, about

_DAY_S: Final = 86400.0


@frozen(kw_only=True)
class AuditSection:
    """How the message audit is processed."""

    topic: str = field(
        default="wc.audit",
        metadata=about("The topic of the counts.", kind=kinds.kafka_name("topic")),
    )
    grace: float = field(
        default=3600.0,
        metadata=about(
            "How long after its end a bucket may still get counts; then it is final.",
            kind=kinds.duration(0.0, 36500 * _DAY_S),
            reason="most retries are over, and crashed processes have been restarted",
        ),
    )
    alerts_topic: str | None = field(
        default=None,
        metadata=about(
            "The topic to which `audit report` writes losses; it must exist.",
            kind=kinds.kafka_name("topic"),
            default="none: nothing is written",
        ),
    )
    unaudited: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "Topics that also have producers without an audit: none of their records are reported "
            "as lost.",
            kind=kinds.list_of(kinds.kafka_name("topic"), "topics", may_be_empty=True),
        ),
    )


SECTION: Final = Section("audit", AuditSection, "How the message audit is processed.")
