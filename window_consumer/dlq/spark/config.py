"""The section ``dlq`` of pipeline.yaml, and how its keys affect reading dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds, names
from window_consumer.config.options import Section, about
from window_consumer.config.problems import Problem
from window_consumer.model.field_mask import FieldMask
from window_consumer.model.key_forms import KeyMode
from window_consumer.spark.plan import PipelinePlan

_DAY_S: Final = 86400.0


@frozen(kw_only=True)
class DeadLetterSection:
    """Which dead-letter topics are read, and which parts of their records are kept."""

    topics: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "Names of dead-letter topics, whatever writes them.",
            kind=kinds.list_of(
                kinds.kafka_name("topic"), "names of dead-letter topics", may_be_empty=True
            ),
            default="none",
        ),
    )
    patterns: tuple[str, ...] = field(
        default=(r"^.+\.dlq$",),
        metadata=about(
            "Regular expressions that are searched in the names of topics, in addition to "
            "`topics`.",
            kind=kinds.list_of(
                kinds.text("a regular expression that begins with ^", names.wrong_pattern, r"^\^"),
                "regular expressions",
                may_be_empty=True,
            ),
            reason="the workers' dead letters are in <group>.<topic>.dlq",
            default=r"`[^.+\.dlq$]`",
        ),
    )
    keep: float = field(
        default=90 * _DAY_S,
        metadata=about(
            "How long dead letters are kept in the table; `pipeline maintain` removes older ones. "
            "The topics keep theirs for their own retention.",
            kind=kinds.duration(_DAY_S, 36500 * _DAY_S),
            reason="longer than the topics, and enough to see whether a cause returns",
        ),
    )
    keys: Literal["raw", "hmac", "off"] = field(
        default="raw",
        metadata=about(
            "How keys appear in the table and in reports: unchanged, as codes, or not at all.",
            kind=kinds.choice("raw", "hmac", "off"),
            reason="the first question is whose records fail",
        ),
    )
    key_secret: str | None = field(
        default=None,
        repr=False,
        metadata=about(
            "The secret for `keys: hmac`.",
            kind=kinds.text("a secret"),
            default="none: required with keys: hmac",
        ),
    )
    values: bool = field(
        default=False,
        metadata=about(
            "Whether the beginnings of values are kept and shown in reports, masked by `mask`.",
            kind=kinds.boolean(),
            reason="a report reaches many people",
        ),
    )

    @property
    def pattern(self) -> str:
        """A Java pattern for the whole names of dead-letter topics."""
        topics = [re.escape(name) for name in self.topics]
        return "|".join([*topics, *(f"(?:{pattern}).*" for pattern in self.patterns)])

    @property
    def keep_days(self) -> int:
        """Days that the table keeps dead letters."""
        return int(self.keep // _DAY_S)


def missing_keys(dlq: DeadLetterSection, _given: Collection[str]) -> Iterator[Problem]:
    """Yield keys that others need."""
    if dlq.keys == "hmac" and not dlq.key_secret:
        yield Problem(("key_secret",), "is missing: keys are codes (hmac)")
    if not dlq.topics and not dlq.patterns:
        yield Problem(("topics",), "are missing, and so are patterns: write one of the two")


SECTION: Final = Section(
    "dlq",
    DeadLetterSection,
    "Which dead-letter topics are read, and which parts of their records are kept.",
    missing_keys,
)


@frozen(kw_only=True)
class Reading:
    """Which parts of dead letters are kept, and how."""

    mask_of: Callable[[Iterable[str | None]], FieldMask] | None = None
    """Returns a record's mask from its current and original topics, None for an unknown one; None
    hides nothing.
    """
    keys: KeyMode = "raw"
    key_secret: bytes = field(default=b"", repr=False)
    values: bool = False
    """Whether the beginnings of values are kept."""

    @classmethod
    def of(cls, plan: PipelinePlan) -> Reading:
        """Return the settings of a plan."""
        dlq = plan.section(DeadLetterSection)
        return cls(
            mask_of=plan.mask.of if plan.mask.rules else None,
            keys=dlq.keys,
            key_secret=(dlq.key_secret or "").encode(),
            values=dlq.values,
        )

    @property
    def needs_values(self) -> bool:
        """Whether values must be read: to keep them, or to mask quotes of them in texts."""
        return self.values or self.mask_of is not None

    def mask(self, topics: Iterable[str | None]) -> FieldMask:
        """Return the mask for one record."""
        return FieldMask(()) if self.mask_of is None else self.mask_of(topics)
