"""The sections `sqs` (where the endpoint listens) and `pull` (which makes a worker a queue)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from attrs import evolve, field, frozen

from window_consumer.config import Config, WorkerConfig, kinds
from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.options import Section, about
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.config.sections.listening import (
    ListenAddress,
    ListenSection,
    TlsConfig,
    address_kind,
)
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.runtime.pools.lease_pool import LEASES

PULL: Final = "pull"

LONGEST_LEASE_S: Final = 43_200.0
"""Twelve hours, the longest that clients of SQS may ask for."""

_ACCESS_KEY_ID: Final = r"^[A-Za-z0-9_-]{1,128}$"

Credentials = Mapping[str, str]

_OPEN_TO_OTHERS: Final = """\
is {given}, which others can reach, without sqs.credentials; choose:
  listen: 127.0.0.1:{port}, for clients on this machine
  credentials: {{ACCESS_KEY_ID: "${{SECRET}}"}}, with which clients sign their requests"""

_TAKEN_OUT: Final = {
    "concurrency": "pull.max_in_flight replaces it",
    "batch": "a client that asks for ten records gets a lease for each",
    "stall": "a lease ends after pull.visibility_timeout, so no call needs to be watched",
}
"""Keys without meaning for a worker with `pull`, and why."""


def _wrong_secret(text: str) -> str | None:
    # The message never contains the text.
    return None if re.fullmatch(r"[\x21-\x7e]+", text) else "is empty, or has spaces or no ASCII"


def _credentials_kind() -> ValueKind:
    """A mapping of access key ids to secret access keys."""
    expected = 'a mapping of access key ids to their secrets, as in {SHOP: "${SQS_SECRET}"}'
    secret = kinds.text("a secret access key", _wrong_secret)

    def read(raw: Any) -> Credentials:
        if not isinstance(raw, dict) or not raw:
            raise InvalidError.of("(hidden)" if raw else raw, expected)
        problems: list[Problem] = []
        found: dict[str, str] = {}
        for name, given in raw.items():
            if not re.fullmatch(_ACCESS_KEY_ID, str(name)):
                message = "an access key id is made of letters, digits, dashes and underscores"
                problems.append(Problem((str(name),), message))
            try:
                found[str(name)] = secret.read(given)
            except InvalidError as error:
                problems.extend(each.below((str(name),)) for each in error.problems)
        if problems:
            raise InvalidError(*problems)
        return MappingProxyType(found)

    text = {"anyOf": [{"type": "string", "minLength": 1}, REFERENCE]}
    schema = {
        "type": "object",
        "propertyNames": {"pattern": _ACCESS_KEY_ID},
        "additionalProperties": text,
        "minProperties": 1,
    }
    return ValueKind("mapping of secrets", expected, read, lambda _: "{}", schema, expected)


@frozen(kw_only=True)
class SqsConfig(ListenSection):
    """The endpoint for clients of Amazon SQS."""

    listen: str | None = field(
        default=None,
        metadata=about(
            "Where clients of Amazon SQS find the queues of this process, one for each worker "
            "with `pull`. Port 0 means any free port, which the log reports. Needs the extra sqs.",
            kind=address_kind(),
            default="none: nothing listens",
        ),
    )
    advertise: str | None = field(
        default=None,
        metadata=about(
            "The address of this process as its clients write it, such as http://10.1.2.3:9324. "
            "It appears in the URLs of queues, and in errors about receipt handles of another "
            "process.",
            kind=kinds.text("a URL such as http://10.1.2.3:9324", pattern="^https?://[^ /]+$"),
            default="that of `listen`",
        ),
    )
    credentials: Credentials = field(
        default=MappingProxyType({}),
        repr=False,
        metadata=about(
            "The secret access keys of clients by their access key ids. Clients sign each request "
            "(Signature Version 4).",
            kind=_credentials_kind(),
            default="none: only a local address is allowed, and every client there is served",
            secret=True,
        ),
    )
    tls: TlsConfig = field(
        factory=TlsConfig, metadata=about("The certificate for HTTPS, and its key.")
    )

    @property
    def url(self) -> str:
        """The address as clients write it; empty if nothing listens."""
        return "" if self.address is None else self.url_at(self.address.port)

    def url_at(self, port: int) -> str:
        """Return the address as clients write it, if it listens on this port."""
        if self.advertise is not None or self.address is None:
            return self.advertise or ""
        scheme = "http" if self.tls.certificate is None else "https"
        return f"{scheme}://{ListenAddress(self.address.host, port)}"


@frozen(kw_only=True)
class PullConfig:
    """How clients lease the records of a worker."""

    visibility_timeout: float = field(
        default=30.0,
        metadata=about(
            "How long a client has a record before others get it, unless the client asks for "
            "another time.",
            kind=kinds.duration(1.0, LONGEST_LEASE_S),
            reason="that of Amazon SQS",
        ),
    )
    max_in_flight: int = field(
        default=1000,
        metadata=about(
            "The most records that clients may have at once, in each process. It replaces"
            " `concurrency`.",
            kind=kinds.whole_number(1, 120_000),
            reason="enough for a hundred clients with ten records each",
        ),
    )
    send_to: str | None = field(
        default=None,
        metadata=about(
            "The topic that SendMessage writes to.",
            kind=kinds.kafka_name("topic"),
            default="the only topic of `topics`; none if there are several, or patterns",
        ),
    )

    is_on: bool = False
    """Whether the worker is a queue: it has this section, even without keys."""


def pulls(worker: WorkerConfig) -> bool:
    """Return whether a worker is a queue."""
    return worker.section(PullConfig).is_on


def queue_name(worker: WorkerConfig) -> str:
    """Return the name of a worker's queue: clients expect FIFO queues to end in `.fifo`."""
    return f"{worker.name}.fifo" if worker.ordering == "key" else worker.name


def send_topic(worker: WorkerConfig) -> str | None:
    """Return the topic that a queue's SendMessage writes to; None if it is not determined."""
    given = worker.section(PullConfig).send_to
    return worker.topics[0] if given is None and len(worker.topics) == 1 else given


def _endpoint_conflicts(sqs: SqsConfig, given: Collection[str]) -> Iterator[Problem]:
    tls, address = sqs.tls, sqs.address
    if given and address is None:
        yield Problem(("listen",), "is missing: an address such as 127.0.0.1:9324")
    if (tls.certificate is None) != (tls.key is None):
        missing = "certificate" if tls.certificate is None else "key"
        yield Problem(("tls", missing), "is missing: certificate and key go together")
    if address is not None and not address.is_loopback and not sqs.credentials:
        message = _OPEN_TO_OTHERS.format(given=sqs.listen, port=address.port)
        yield Problem(("listen",), message)


def _endpoint_relations(config: Config) -> Iterator[Problem]:
    workers = config.workers.items()
    queues = [name for name, worker in workers if worker.enabled and pulls(worker)]
    if queues and config.section(SqsConfig).listen is None:
        message = f"is missing, but workers.{queues[0]} has pull: set the address for its clients,"
        yield Problem(("listen",), f"{message} such as sqs: {{listen: 127.0.0.1:9324}}")


def _worker_conflicts(worker: WorkerConfig, given: Collection[str]) -> Iterator[Problem]:
    if not pulls(worker):
        return
    for key, why in _TAKEN_OUT.items():
        if key in given:
            yield Problem((key,), f"has no meaning for a worker with pull: {why}: remove it")
    if worker.delivery is not DeliveryMode.AT_LEAST_ONCE:
        message = f"is {worker.delivery}, but nobody knows what a dead client did with its records:"
        yield Problem(("delivery",), f"{message} a worker with pull delivers at_least_once")
    target = worker.section(PullConfig).send_to
    reads = target in worker.topics or any(
        re.search(each, target or "") for each in worker.patterns
    )
    if target is not None and not reads:
        message = f"is {target}, which the worker does not read: its clients would never receive"
        yield Problem((PULL, "send_to"), f"{message} what they send")


def _decided(pull: PullConfig) -> Mapping[str, Any]:
    return {"pool": LEASES.name, "concurrency": pull.max_in_flight} if pull.is_on else {}


ENDPOINT: Final = Section(
    "sqs",
    SqsConfig,
    "The endpoint that clients of Amazon SQS call: workers with `pull` are its queues.",
    _endpoint_conflicts,
    relations=_endpoint_relations,
)

QUEUE: Final = Section(
    PULL,
    PullConfig,
    "Makes the worker a queue: clients lease its records and delete them when they are done.",
    written=lambda pull: evolve(pull, is_on=True),
    handles=lambda pull: pull.is_on,
    decides=_decided,
    relations_in_worker=_worker_conflicts,
)
