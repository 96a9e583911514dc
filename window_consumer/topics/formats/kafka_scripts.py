"""A plan as commands of Kafka's own scripts, to read and paste."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from window_consumer.plan.feature import AclRule
from window_consumer.topics.cluster_plan import ClusterPlan, PlannedTopic
from window_consumer.topics.formats.identifiers import camel_case, comments

_ADDRESS = '"${KAFKA_BOOTSTRAP:?HOST:PORT of a broker}"'
_PRINCIPAL = '"${PRINCIPAL:?User:NAME of the workers}"'
"""An unknown principal is left to the shell, which aborts the command if the variable is unset."""


def as_shell(plans: Sequence[ClusterPlan], principal: str | None) -> str:
    """Return the commands. Repeating them is safe: existing resources stay unchanged."""
    return "\n".join(line for plan in plans for line in _lines(plan, principal))


def _lines(plan: ClusterPlan, principal: str | None) -> Iterator[str]:
    address = plan.bootstrap or _ADDRESS
    yield f"# Topics and ACLs of {', '.join(plan.workers)}. If the cluster requires a login,"
    yield "# add --command-config FILE with the properties of a user who may do this."
    yield from comments(plan.notes)
    for topic in plan.topics:
        yield ""
        yield from _topic(topic, address)
    for right in plan.rights:
        yield ""
        yield from _right(right, address, principal or _PRINCIPAL)
    yield ""


def _topic(topic: PlannedTopic, address: str) -> Iterator[str]:
    now = topic.partitions_now
    there = "" if now is None else f"; exists already, with {now} partitions"
    yield f"# {topic.what}{there}"
    yield _line([*topic.new.words(address), "--if-not-exists"])
    if topic.is_too_narrow:
        yield _line(
            [
                *("kafka-topics.sh", "--bootstrap-server", address, "--alter"),
                *("--topic", topic.new.name, "--partitions", str(topic.new.partitions)),
            ]
        )


def _right(right: AclRule, address: str, principal: str) -> Iterator[str]:
    yield f"# {right.why}"
    words = [
        *("kafka-acls.sh", "--bootstrap-server", address, "--add"),
        *("--allow-principal", principal),
    ]
    for operation in right.operations:
        words += ["--operation", camel_case(operation)]
    words += [f"--{right.kind}", right.name]
    if right.is_prefix:
        words += ["--resource-pattern-type", "prefixed"]
    yield _line(words)


def _line(words: Sequence[str]) -> str:
    """Quote words for a shell, except for the variables that it must expand."""
    return " ".join(word if word in {_ADDRESS, _PRINCIPAL} else shlex.quote(word) for word in words)
