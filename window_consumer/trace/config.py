"""The section ``trace``, and its key ``sample``: a share of all records, or of all keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds, units
from window_consumer.config.kinds import ValueKind
from window_consumer.config.options import about
from window_consumer.config.problems import InvalidError, Problem, did_you_mean

_MIB: Final = 1024**2


@frozen
class TraceSample:
    """Which records are traced."""

    ratio: float
    """A share; 1.0 means all."""
    by: Literal["record", "key"] = "record"


_RATIO: Final = kinds.percent(0.0001, 1.0)
_BY: Final = kinds.choice("record", "key")
_EXPECTED: Final = "a percentage such as 1% or 100%, or {by: key, ratio: 1%}"


def sample_kind() -> ValueKind:
    """A TraceSample: a percentage, or a mapping."""
    schema = {
        "anyOf": [
            _RATIO.schema,
            {
                "type": "object",
                "properties": {"by": _BY.schema, "ratio": _RATIO.schema},
                "required": ["ratio"],
                "additionalProperties": False,
            },
        ]
    }
    limits = f"{_RATIO.limits}; or by (record, key) and ratio"
    return ValueKind("sample", _EXPECTED, _read, _write, schema, limits)


def _read(raw: Any) -> TraceSample:
    if not isinstance(raw, dict):
        try:
            return TraceSample(_RATIO.read(raw))
        except InvalidError as error:
            if isinstance(raw, str | int | float):
                raise
            raise InvalidError.of(raw, _EXPECTED) from error
    kinds_of = {"by": _BY, "ratio": _RATIO}
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in kinds_of:
            hint = did_you_mean(str(key), kinds_of) or f"known are {', '.join(kinds_of)}"
            problems.append(Problem((key,), f"unknown key; {hint}"))
            continue
        try:
            values[key] = kinds_of[key].read(value)
        except InvalidError as error:
            problems.extend(problem.below((key,)) for problem in error.problems)
    if "ratio" not in raw:
        problems.append(Problem(("ratio",), f"is missing: {_RATIO.expected}"))
    if problems:
        raise InvalidError(*problems)
    return TraceSample(**values)


def _write(sample: TraceSample) -> str:
    ratio = units.format_percent(sample.ratio)
    return ratio if sample.by == "record" else f"{{by: key, ratio: {ratio}}}"


@frozen(kw_only=True)
class TraceConfig:
    """The message trace: the history of each record."""

    sample: TraceSample | None = field(
        default=None,
        metadata=about(
            "Which records are traced: a share of them, or all records of a share of the keys "
            "({by: key, ratio: 1%}). All workers choose the same records.",
            kind=sample_kind(),
            default="none: nothing is traced",
        ),
    )
    failures: Literal["all", "sampled"] = field(
        default="all",
        metadata=about(
            "all: failed calls, retries, dead letters, expired and dropped records are traced for "
            "every record. sampled: only for those that `sample` chooses.",
            kind=kinds.choice("all", "sampled"),
            reason="they are few, and they are what people look for",
        ),
    )
    topic: str = field(
        default="wc.trace",
        metadata=about(
            "The topic for the events. It is created if it is missing and `topics.create` allows "
            "it; without it, events are lost and counted, but workers run.",
            kind=kinds.kafka_name("topic"),
            reason="one topic for all groups, because a record passes through several",
        ),
    )
    keys: Literal["raw", "hmac", "off"] = field(
        default="off",
        metadata=about(
            "How keys appear in events: unchanged, as codes that can only be searched with "
            "`key_secret`, or not at all.",
            kind=kinds.choice("raw", "hmac", "off"),
            reason="a key may identify a person, and the trace has more readers than the topics",
        ),
    )
    key_secret: str | None = field(
        default=None,
        repr=False,
        metadata=about(
            "The secret for `keys: hmac`. Events are comparable only if it is the same.",
            kind=kinds.text(
                "a secret of at least 16 characters",
                lambda text: None if len(text) >= 16 else "is too short",
            ),
            default="none: required with keys: hmac",
            secret=True,
        ),
    )
    way: Literal["kafka", "spool"] = field(
        default="kafka",
        metadata=about(
            "kafka: events go directly to the topic; events that the brokers do not accept within "
            "30s are lost and counted. spool: they go to files first, which survive the process "
            "and wait while brokers are away.",
            kind=kinds.choice("kafka", "spool"),
            reason="needs no disk",
        ),
    )
    acks: Literal["0", "1", "all"] = field(
        default="1",
        metadata=about(
            "Which replicas must confirm events with `way: kafka`. With 0, none does, and refused "
            "events are lost without being counted. The spool always waits for all.",
            kind=kinds.choice("0", "1", "all"),
            reason="counts lost events, and does not wait for other replicas",
        ),
    )
    directory: str | None = field(
        default=None,
        metadata=about(
            "The directory of the spool; processes may share one. A relative name starts at the "
            "configuration file's directory.",
            kind=kinds.text("the name of a directory"),
            default="none: required with way: spool",
        ),
    )
    max_bytes: int = field(
        default=1024 * _MIB,
        metadata=about(
            "The most that the spool's directory may hold. Further events are lost and counted.",
            kind=kinds.size(_MIB, 1024**5),
            reason="about ten million events: hours of an outage at a thousand records a second",
        ),
    )
    flush: float = field(
        default=1.0,
        metadata=about(
            "How long events are gathered before they are sent, or written and flushed to disk.",
            kind=kinds.duration(0.01, 60.0),
            reason="a killed process loses this much; many events share a batch",
        ),
    )


def conflicts(trace: TraceConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield missing keys, and keys that would have no effect."""
    if trace.sample is None:
        if given:
            message = "is missing, and without it nothing is traced: write sample: 100%, or 1%"
            yield Problem(("sample",), message)
        return
    if trace.keys == "hmac" and trace.key_secret is None:
        yield Problem(("key_secret",), "is missing: keys: hmac makes its codes with it")
    if trace.keys != "hmac" and trace.key_secret is not None:
        yield Problem(("key_secret",), f"is for keys: hmac, and keys is {trace.keys}")
    if trace.way == "spool" and trace.directory is None:
        yield Problem(("directory",), "is missing: way: spool writes its files there")
    if trace.way != "spool" and trace.directory is not None:
        yield Problem(("directory",), "is for way: spool, and way is kafka")
