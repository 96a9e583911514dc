"""The section ``trace`` of pipeline.yaml."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import Section, about
from window_consumer.config.problems import Problem

_DAY_S: Final = 86400.0


@frozen(kw_only=True)
class TraceSection:
    """How the message trace is processed."""

    topic: str = field(
        default="wc.trace",
        metadata=about("The topic of the events.", kind=kinds.kafka_name("topic")),
    )
    keep: float = field(
        default=30 * _DAY_S,
        metadata=about(
            "How long events are kept in the table; `pipeline maintain` removes older days.",
            kind=kinds.duration(_DAY_S, 36500 * _DAY_S),
            reason="a complaint comes within a month",
        ),
    )
    keys: Literal["raw", "hmac", "off"] = field(
        default="raw",
        metadata=about(
            "How keys appear in the trace, as in workers.yaml; `trace search --key` needs to know.",
            kind=kinds.choice("raw", "hmac", "off"),
            reason="a search for a code in plain keys finds nothing",
        ),
    )
    key_secret: str | None = field(
        default=None,
        repr=False,
        metadata=about(
            "The secret for `keys: hmac`, as in workers.yaml.",
            kind=kinds.text("a secret"),
            default="none: required with keys: hmac",
        ),
    )

    @property
    def keep_days(self) -> int:
        """Days that the table keeps events."""
        return int(self.keep // _DAY_S)


def missing_keys(trace: TraceSection, _given: Collection[str]) -> Iterator[Problem]:
    """Yield keys that others need."""
    if trace.keys == "hmac" and not trace.key_secret:
        yield Problem(("key_secret",), "is missing: keys are codes (hmac)")


SECTION: Final = Section("trace", TraceSection, "How the message trace is processed.", missing_keys)
