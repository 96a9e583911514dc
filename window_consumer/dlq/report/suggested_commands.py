"""The commands that redrive the dead letters of a cause, and that show an example."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime

from window_consumer.dlq.conditions import parse_where
from window_consumer.dlq.dead_letter import WrittenBy
from window_consumer.dlq.spark.findings import DeadLetterFindings, Example, FailureGroup
from window_consumer.model.conditions.expressions import ExpressionError
from window_consumer.model.conditions.tokens import quoted

_DOES_SOMETHING = re.compile(r'["$`\\!]')
"""Characters that are special within double quotes."""


def redrive_of(cause: FailureGroup, findings: DeadLetterFindings, workers_file: str) -> str | None:
    """Return the redrive command; None if there is none (``why_none`` gives the reason)."""
    where = _condition(cause, findings)
    topics = _topics(cause)
    if where is None or not topics or not cause.waits:
        return None
    words = ["window-consumer", "dlq", "redrive", "-c", workers_file]
    for topic in topics:
        words += ["--topic", topic]
    return f"{shlex.join(words)} --where {_in_quotes(where)}"


def show_of(example: Example, workers_file: str) -> str:
    """Return the command that shows an example; by default it searches the workers' topics."""
    topic = example.dead_letter.split("/", 1)[0]
    given = ("-c", workers_file, "--topic", topic, example.dead_letter)
    return shlex.join(["window-consumer", "dlq", "show", *given])


def why_none(cause: FailureGroup) -> str:
    """Return why a cause has no command."""
    if not cause.waits:
        return "none of them is still waiting"
    others = [each.value for each in cause.sides.get("by", ()) if each.value]
    if others == [WrittenBy.UNKNOWN.value]:
        return "their origin is unknown, so no command can put them back"
    if WrittenBy.WINDOW_CONSUMER.value not in others:
        return (
            f"{', '.join(others)} wrote them, and no worker reads them again: put them back with"
            " its tools, or export them with `window-consumer dlq export --topic ...`"
        )
    return "no condition selects only them: see `window-consumer dlq list`"


def expires_again(cause: FailureGroup) -> bool:
    """Return whether the records would expire again after a redrive."""
    return cause.reason == "EXPIRED"


def _in_quotes(where: str) -> str:
    """Quote a condition for a shell; conditions contain single quotes."""
    return shlex.quote(where) if _DOES_SOMETHING.search(where) else f'"{where}"'


def _topics(cause: FailureGroup) -> list[str]:
    writers = {each.value for each in cause.sides.get("by", ())}
    if WrittenBy.WINDOW_CONSUMER.value not in writers:
        return []
    return sorted(each.value for each in cause.sides["dead_letters"] if each.value is not None)


def _condition(cause: FailureGroup, findings: DeadLetterFindings) -> str | None:
    if cause.fingerprint is not None:
        parts = [f"fingerprint == {quoted(cause.fingerprint)}"]
    else:
        reason = "null" if cause.reason is None else quoted(cause.reason)
        of_class = "null" if cause.error_class is None else quoted(cause.error_class)
        parts = [f"fingerprint == null and reason == {reason} and class == {of_class}"]
    if findings.since_ms is not None:
        since = datetime.fromtimestamp(findings.since_ms / 1000, UTC)
        earliest = since.replace(tzinfo=None).isoformat(timespec="milliseconds")
        parts.append(f"time >= '{earliest}'")
    where = " and ".join(parts)
    if not where.isprintable():
        return None
    try:
        parse_where(where)
    except ExpressionError:
        return None
    return where
