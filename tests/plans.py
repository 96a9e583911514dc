"""Parses what ``topics plan`` prints, independently of the code that wrote it."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

import yaml
from attrs import frozen


@frozen
class TopicSettings:
    """A topic to create."""

    partitions: int
    replication: int
    config: dict[str, str]


@frozen
class Acl:
    """One permission."""

    kind: str
    name: str
    operation: str
    is_prefix: bool
    principal: str


@frozen
class Printed:
    """Everything that a plan contains."""

    topics: dict[str, TopicSettings]
    acls: set[Acl]


# ---- Kafka's scripts


def from_shell(text: str) -> Printed:
    """Read commands as a shell and Kafka's scripts would."""
    topics: dict[str, TopicSettings] = {}
    acls: set[Acl] = set()
    for line in text.splitlines():
        script, *arguments = shlex.split(line, comments=True) or [""]
        if script == "kafka-topics.sh" and "--create" in arguments:
            wanted = _topics_parser().parse_args(arguments)
            config = dict(each.split("=", 1) for each in wanted.config)
            settings = TopicSettings(wanted.partitions, wanted.replication_factor, config)
            assert topics.setdefault(wanted.topic, settings) is settings, "made twice"
        elif script == "kafka-acls.sh":
            acls |= set(_acls(arguments))
        else:
            assert not script or script == "kafka-topics.sh", line
    return Printed(topics, acls)


def _topics_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="kafka-topics.sh", exit_on_error=False, allow_abbrev=False)
    for name in ("--create", "--if-not-exists"):
        parser.add_argument(name, action="store_true", required=True)
    for name in ("--bootstrap-server", "--topic"):
        parser.add_argument(name, required=True)
    for name in ("--partitions", "--replication-factor"):
        parser.add_argument(name, required=True, type=int)
    parser.add_argument("--config", action="append", default=[])
    return parser


def _acls(arguments: list[str]) -> Iterator[Acl]:
    parser = ArgumentParser(prog="kafka-acls.sh", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--add", action="store_true", required=True)
    for name in ("--bootstrap-server", "--allow-principal"):
        parser.add_argument(name, required=True)
    parser.add_argument("--operation", action="append", required=True)
    resource = parser.add_mutually_exclusive_group(required=True)
    for name in ("--topic", "--group", "--transactional-id"):
        resource.add_argument(name)
    parser.add_argument("--resource-pattern-type", choices=["literal", "prefixed"])
    read = parser.parse_args(arguments)
    named = {"topic": read.topic, "group": read.group, "transactional": read.transactional_id}
    ((kind, name),) = [(kind, name) for kind, name in named.items() if name]
    for operation in read.operation:
        is_prefix = read.resource_pattern_type == "prefixed"
        yield Acl(kind, name, operation, is_prefix, read.allow_principal)


# ---- Terraform

_BLOCK = re.compile(r'^resource "(\w+)" "([A-Za-z_][\w-]*)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r'^ +"?([\w.]+)"? += (?:"([^"]*)"|([\w.]+))$', re.MULTILINE)
_TF_KINDS = {"Topic": "topic", "Group": "group", "TransactionalID": "transactional"}


def from_terraform(text: str) -> Printed:
    """Read resources of the provider Mongey/kafka, of the kinds that we write."""
    blocks = _BLOCK.findall(text)
    names = [(kind, name) for kind, name, _ in blocks]
    assert len(names) == len(set(names)) == text.count('resource "')
    topics: dict[str, TopicSettings] = {}
    acls: set[Acl] = set()
    for kind, _, body in blocks:
        plain, _, rest = body.partition("  config = {\n")
        values = {key: text or bare for key, text, bare in _VALUE.findall(plain)}
        if kind == "kafka_topic":
            config = {key: text for key, text, _ in _VALUE.findall(rest)}
            settings = (int(values["partitions"]), int(values["replication_factor"]), config)
            topics[values["name"]] = TopicSettings(*settings)
            continue
        assert kind == "kafka_acl"
        assert (values["acl_host"], values["acl_permission_type"]) == ("*", "Allow")
        pattern = values["resource_pattern_type_filter"]
        acls.add(
            Acl(
                _TF_KINDS[values["resource_type"]],
                values["resource_name"],
                values["acl_operation"],
                {"Prefixed": True, "Literal": False}[pattern],
                values["acl_principal"],
            )
        )
    return Printed(topics, acls)


# ---- Strimzi

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_STRIMZI_KINDS = {"topic": "topic", "group": "group", "transactionalId": "transactional"}


def from_strimzi(text: str, cluster: str = "my-cluster") -> Printed:
    """Read KafkaTopics and the KafkaUser; the principal is the user's name."""
    topics: dict[str, TopicSettings] = {}
    acls: set[Acl] = set()
    names = set()
    for document in yaml.safe_load_all(text):
        if document is None:
            continue
        assert document["apiVersion"] == "kafka.strimzi.io/v1"
        name = document["metadata"]["name"]
        assert _NAME.fullmatch(name)
        assert len(name) <= 253
        assert (document["kind"], name) not in names
        names.add((document["kind"], name))
        assert document["metadata"]["labels"] == {"strimzi.io/cluster": cluster}
        spec: dict[str, Any] = document["spec"]
        if document["kind"] == "KafkaTopic":
            config = {key: str(value) for key, value in spec["config"].items()}
            settings = TopicSettings(spec["partitions"], spec["replicas"], config)
            topics[spec["topicName"]] = settings
            continue
        assert document["kind"] == "KafkaUser"
        assert spec["authorization"]["type"] == "simple"
        acls |= {
            Acl(
                _STRIMZI_KINDS[acl["resource"]["type"]],
                acl["resource"]["name"],
                operation,
                acl["resource"]["patternType"] == "prefix",
                name,
            )
            for acl in spec["authorization"]["acls"]
            for operation in acl["operations"]
        }
    return Printed(topics, acls)
