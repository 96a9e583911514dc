"""A plan as resources of Strimzi: KafkaTopic and KafkaUser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from window_consumer.model.errors import UsageError
from window_consumer.plan.feature import AclRule
from window_consumer.topics.cluster_plan import ClusterPlan, PlannedTopic
from window_consumer.topics.formats.identifiers import camel_case, comments, kubernetes_name

_VERSION = "kafka.strimzi.io/v1"
"""The version of Strimzi 0.49 and later; the older v1beta2 was removed in 1.0."""

_KINDS = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}


def as_strimzi(plan: ClusterPlan, principal: str | None, cluster: str) -> str:
    """Return YAML documents: one for each topic, and the user with all ACLs.

    Without a principal, the user is named after the first group. Raises UsageError for a principal
    that Strimzi cannot create.
    """
    labels = {"strimzi.io/cluster": cluster}
    topics = [f"# {topic.what}\n{_dumped(_topic(topic, labels))}" for topic in plan.topics]
    user = _dumped(_user(plan, principal, labels))
    return "\n".join(
        [*_header_comments(plan), *(f"---\n{each.rstrip()}" for each in [*topics, user])]
    )


def _header_comments(plan: ClusterPlan) -> Iterator[str]:
    yield f"# Topics and ACLs of {', '.join(plan.workers)}, for Strimzi 0.49 and later."
    yield "# The label strimzi.io/cluster names your Kafka resource: --strimzi-cluster."
    yield from comments(plan.notes)


def _topic(topic: PlannedTopic, labels: dict[str, str]) -> dict[str, Any]:
    new = topic.new
    return {
        "apiVersion": _VERSION,
        "kind": "KafkaTopic",
        "metadata": {"name": kubernetes_name(new.name), "labels": labels},
        "spec": {
            "topicName": new.name,
            "partitions": new.partitions,
            "replicas": new.replication,
            "config": {key: _plain(value) for key, value in new.config.items()},
        },
    }


def _user(plan: ClusterPlan, principal: str | None, labels: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    name = kubernetes_name(plan.groups[0])
    if principal is not None:
        name = principal.removeprefix("User:").removeprefix("CN=")
        if principal.startswith("User:CN="):
            spec["authentication"] = {"type": "tls"}
        if not principal.startswith("User:") or kubernetes_name(name) != name:
            raise UsageError(
                f"--principal {principal}: Strimzi's users are User:NAME or User:CN=NAME, where"
                " NAME is a Kubernetes name: lower-case letters, digits, - and ."
            )
    acls = [_acl(right) for right in plan.rights]
    spec["authorization"] = {"type": "simple", "acls": acls}
    return {
        "apiVersion": _VERSION,
        "kind": "KafkaUser",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def _acl(right: AclRule) -> dict[str, Any]:
    return {
        "resource": {
            "type": _KINDS[right.kind],
            "name": right.name,
            "patternType": "prefix" if right.is_prefix else "literal",
        },
        "operations": [camel_case(operation) for operation in right.operations],
    }


def _plain(value: str) -> str | int:
    return int(value) if value.isdigit() else value


def _dumped(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_WithoutAliases, sort_keys=False)


class _WithoutAliases(yaml.SafeDumper):
    """Writes shared values twice instead of using YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: no aliases."""
        del data
        return True
