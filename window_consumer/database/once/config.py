"""The section `workers.X.once`: its values override the decorator's ``once=``."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import Section, about

_LONGEST_KEEP_S = 366 * 86_400.0


@frozen(kw_only=True)
class OnceConfig:
    """Values that replace those of the handler's ``once=``."""

    keep: float | None = field(
        default=None,
        metadata=about(
            "How long the database remembers a record's id: repeated later, a record has another"
            " effect.",
            kind=kinds.duration(1.0, _LONGEST_KEEP_S),
            reason="the 14 days that dead letters stay (topics.dlq_retention), and a day for the "
            "retries before them",
            default="the value in Once(): 15d",
        ),
    )
    lock_timeout: float | None = field(
        default=None,
        metadata=about(
            "How long a call waits for another one with the same id. Then it leaves its slot and"
            " is repeated after 1 s, without spending an attempt.",
            kind=kinds.duration(0.001, 60.0),
            default="the value in Once(): 2s",
        ),
    )
    fenced: bool | None = field(
        default=None,
        metadata=about(
            "Whether a counter in the database keeps a member that was removed from the group"
            " from writing.",
            kind=kinds.boolean(),
            default="the value in Once(): false",
        ),
    )


SECTION: Final = Section(
    "once", OnceConfig, "For handlers with once=: values that override those in the code."
)
