"""The section `workers.X.broadcast`: where each process begins, and what happens to failures."""

from __future__ import annotations

from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds, units
from window_consumer.config.kinds import ValueKind
from window_consumer.config.options import about
from window_consumer.config.problems import InvalidError, did_you_mean

_WORDS: Final = ("latest", "earliest")
_LONGEST_S: Final = 36500 * 86400.0
_EXPECTED: Final = "latest, earliest, or an age such as 15m"


def begin_kind() -> ValueKind:
    """A word, or an age in seconds."""
    age = kinds.duration(0.001, _LONGEST_S)

    def read(raw: Any) -> str | float:
        if raw in _WORDS:
            return str(raw)
        if isinstance(raw, str) and raw[:1].isalpha():
            raise InvalidError.of(raw, _EXPECTED, hint=did_you_mean(raw, _WORDS))
        if not isinstance(raw, str | int | float) or isinstance(raw, bool):
            raise InvalidError.of(raw, _EXPECTED)
        seconds: float = age.read(raw)
        return seconds

    def write(value: str | float) -> str:
        return value if isinstance(value, str) else units.format_duration(value)

    schema = {"anyOf": [{"enum": list(_WORDS)}, age.schema]}
    return ValueKind(
        "word or duration", _EXPECTED, read, write, schema, f"latest; earliest; {age.limits}", "str"
    )


@frozen(kw_only=True)
class BroadcastConfig:
    """How a worker with `delivery: broadcast` reads."""

    from_: Literal["latest", "earliest"] | float = field(
        default="latest",
        metadata=about(
            "Where each process begins: with records that arrive after its start, with the "
            "earliest record, or with records no older than this age. Partitions and "
            "topics that appear later begin at their earliest record.",
            kind=begin_kind(),
            reason="a process that needs earlier records must ask for them, and may wait for them",
        ),
    )
    when_spent: Literal["stop", "drop"] = field(
        default="stop",
        metadata=about(
            "What happens to a record without attempts left: the worker stops, or the record is "
            "dropped and counted. The same applies to a record that no handler takes.",
            kind=kinds.choice("stop", "drop"),
            reason="a process that missed a record would differ from the others",
        ),
    )
