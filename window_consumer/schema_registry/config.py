"""The section `workers.X.schema`: the registry of a worker's schemas, and their format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds, urls
from window_consumer.config.options import Section, about
from window_consumer.config.problems import Problem
from window_consumer.config.sections.worker import WorkerConfig

_MESSAGE: Final = "the class of a message, such as shop.orders_pb2:Order"
_MODULE_AND_CLASS: Final = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
_LOGIN: Final = "user and password as separate keys"


def _wrong_message(text: str) -> str | None:
    return None if re.fullmatch(_MODULE_AND_CLASS, text) else "is not MODULE:CLASS"


@frozen(kw_only=True)
class SslConfig:
    """How the registry is verified, and how the worker identifies itself to it."""

    ca: str | None = field(
        default=None,
        metadata=about(
            "A file or directory with the certificates that must have signed the registry's.",
            kind=kinds.text("a file or a directory"),
            default="those of certifi",
        ),
    )
    certificate: str | None = field(
        default=None,
        metadata=about(
            "The file with the worker's own certificate, in PEM format.",
            kind=kinds.text("a file"),
            default="none",
        ),
    )
    key: str | None = field(
        default=None,
        metadata=about(
            "The file with its private key.",
            kind=kinds.text("a file"),
            default="the key in the file of the certificate",
        ),
    )
    key_password: str | None = field(
        default=None,
        metadata=about(
            "The password of the private key.",
            kind=kinds.text("a password"),
            default="none",
            secret=True,
        ),
    )


@frozen(kw_only=True)
class SchemaConfig:
    """Values are read by the schemas in a registry."""

    registry: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The URL of the Schema Registry; separate several of one registry by commas.",
            kind=urls.urls("a URL such as https://registry.internal:8081", _LOGIN),
            default="none: required in a section schema",
        ),
    )
    format: Literal["avro", "json", "protobuf"] | None = field(
        default=None,
        metadata=about(
            "The format of the values. A handler gets a dict or its own class; with protobuf it "
            "gets the message.",
            kind=kinds.choice("avro", "json", "protobuf"),
            default="none: required in a section schema",
        ),
    )
    message: str | None = field(
        default=None,
        metadata=about(
            "With format: protobuf, the class that protoc has generated, as MODULE:CLASS.",
            kind=kinds.text(_MESSAGE, _wrong_message, f"^{_MODULE_AND_CLASS}$"),
            default="the annotation of the handler's parameter",
        ),
    )
    user: str | None = field(
        default=None,
        metadata=about(
            "The user for the registry, or its API key.", kind=kinds.text("a user"), default="none"
        ),
    )
    password: str | None = field(
        default=None,
        metadata=about(
            "The user's password, or the API secret.",
            kind=kinds.text("a password"),
            default="none",
            secret=True,
        ),
    )
    ssl: SslConfig = field(
        factory=SslConfig,
        metadata=about("How the registry is verified, and how the worker identifies itself to it."),
    )
    timeout: float = field(
        default=10.0,
        metadata=about(
            "How long one request to the registry may take. Each schema is requested once.",
            kind=kinds.duration(0.1, 300.0),
            reason="a registry that takes longer is down",
        ),
    )


def conflicts(section: SchemaConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield conflicts between valid keys."""
    if section.message is not None and section.format in {"avro", "json"}:
        message = f"is for format: protobuf, but format is {section.format}: remove it"
        yield Problem(("message",), message)
    if (section.user is None) != (section.password is None):
        there, missing = ("user", "password") if section.password is None else ("password", "user")
        yield Problem((missing,), f"is missing: {there} is useless without it")
    ssl = section.ssl
    if ssl.certificate is None and (ssl.key is not None or ssl.key_password is not None):
        yield Problem(("ssl", "certificate"), "is missing: a key is useless without it")
    if "ssl" in given and any(url.startswith("http://") for url in section.registry):
        yield Problem(("ssl",), "has no effect: registry begins with http://, write https://")


def _relations(worker: WorkerConfig, given: Collection[str]) -> Iterator[Problem]:
    if SECTION.name not in given:
        return
    section = worker.section(SchemaConfig)
    if not section.registry:
        message = "is missing: a URL such as https://registry.internal:8081"
        yield Problem((SECTION.name, "registry"), message)
    if section.format is None:
        yield Problem((SECTION.name, "format"), "is missing: one of avro, json or protobuf")
    if worker.handled_by:
        message = f"has no effect beside {worker.handled_by}, which passes values on unchanged"
        yield Problem((SECTION.name,), f"{message}: remove one of them")


SECTION: Final = Section(
    "schema",
    SchemaConfig,
    "Reads values by the schemas in a Schema Registry: Avro, JSON Schema or Protobuf.",
    conflicts,
    relations_in_worker=_relations,
)
