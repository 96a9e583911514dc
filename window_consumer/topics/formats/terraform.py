"""A plan as resources of the Terraform provider Mongey/kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator

from window_consumer.plan.feature import AclRule
from window_consumer.topics.cluster_plan import ClusterPlan, PlannedTopic
from window_consumer.topics.formats.identifiers import camel_case, comments, identifier

_KINDS = {"topic": "Topic", "group": "Group", "transactional-id": "TransactionalID"}


def as_terraform(plan: ClusterPlan, principal: str | None) -> str:
    """Return ``kafka_topic`` and ``kafka_acl`` resources; without a principal, a variable."""
    return "\n".join(_lines(plan, principal))


def _lines(plan: ClusterPlan, principal: str | None) -> Iterator[str]:
    yield f"# Topics and ACLs of {', '.join(plan.workers)}, for the provider Mongey/kafka."
    yield from comments(plan.notes)
    if principal is None:
        yield ""
        yield 'variable "principal" {'
        yield "  type        = string"
        yield '  description = "The Kafka principal of the workers, as in User:shop"'
        yield "}"
    taken: set[str] = set()
    for topic in plan.topics:
        yield ""
        yield from _topic(topic, taken)
    who = "var.principal" if principal is None else _text(principal)
    for right in plan.rights:
        for operation in right.operations:
            yield ""
            yield from _right(right, operation, who, taken)


def _topic(topic: PlannedTopic, taken: set[str]) -> Iterator[str]:
    new = topic.new
    yield f"# {topic.what}"
    yield from _head("kafka_topic", new.name, taken)
    yield f"  name               = {_text(new.name)}"
    yield f"  partitions         = {new.partitions}"
    yield f"  replication_factor = {new.replication}"
    yield "  config = {"
    width = max(map(len, new.config)) + 2
    for key, value in new.config.items():
        yield f"    {_text(key):{width}} = {_text(value)}"
    yield "  }"
    yield "}"


def _right(right: AclRule, operation: str, who: str, taken: set[str]) -> Iterator[str]:
    kind = _KINDS[right.kind]
    pattern = "Prefixed" if right.is_prefix else "Literal"
    yield f"# {right.why}"
    yield from _head("kafka_acl", f"{right.kind}-{right.name}-{operation.lower()}", taken)
    yield f"  resource_name                = {_text(right.name)}"
    yield f"  resource_type                = {_text(kind)}"
    yield f"  resource_pattern_type_filter = {_text(pattern)}"
    yield f"  acl_principal                = {who}"
    yield '  acl_host                     = "*"'
    yield f"  acl_operation                = {_text(camel_case(operation))}"
    yield '  acl_permission_type          = "Allow"'
    yield "}"


def _head(kind: str, name: str, taken: set[str]) -> Iterator[str]:
    found = identifier(name, {each.removeprefix(f"{kind}.") for each in taken})
    taken.add(f"{kind}.{found}")
    yield f'resource "{kind}" "{found}" {{'


def _text(value: str) -> str:
    """Write a text as Terraform reads it: with JSON's escapes and escaped templates."""
    return json.dumps(value).replace("${", "$${").replace("%{", "%%{")
