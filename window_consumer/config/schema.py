"""The configuration as a whole: the sections of the kernel, and those that features declare.

Times are in seconds, sizes in bytes. The fields' metadata is the one source for messages, the
reference page and the JSON Schema. Rules between keys are in ``checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import field, frozen

from window_consumer.config.options import about, declared_by_features
from window_consumer.config.sections import DlqConfig, ErrorsConfig, TopicsConfig
from window_consumer.config.sections.kafka_login import with_login
from window_consumer.config.sections.kafka_properties import Client, KafkaConfig, Scalar
from window_consumer.config.sections.mask import MaskRule, MaskRules
from window_consumer.config.sections.worker import WorkerConfig

T = TypeVar("T")


@frozen(kw_only=True)
class Config:
    """A whole configuration."""

    kafka: KafkaConfig = field(
        factory=KafkaConfig,
        metadata=about(
            "Properties for all clients, passed to librdkafka unchanged: dotted names, not nested "
            "except for the sub-maps consumer, producer and admin."
        ),
    )
    workers: Mapping[str, WorkerConfig] = field(
        metadata=about("The workers by name; thread names contain these names.")
    )
    topics: TopicsConfig = field(
        factory=TopicsConfig,
        metadata=about("What the framework may do to the topics that it writes to."),
    )
    dlq: DlqConfig = field(
        factory=DlqConfig, metadata=about("What readers see of dead letters, and what is hidden.")
    )
    mask: tuple[MaskRule, ...] = field(
        default=(), metadata=about("What to hide of records wherever people see them.")
    )
    errors: ErrorsConfig = field(
        factory=ErrorsConfig, metadata=about("What is shown of the exceptions that handlers raise.")
    )

    features: Mapping[type, Any] = field(factory=dict, metadata=declared_by_features("file"))
    """The sections of features, by class; a mapping for each section with names."""

    def section(self, kind: type[T]) -> T:
        """Return the section that a feature declared."""
        found: T = self.features[kind]
        return found

    def named(self, kind: type[T]) -> Mapping[str, T]:
        """Return the sections of a feature by their names, see ``Section.has_names``."""
        found: Mapping[str, T] = self.features[kind]
        return found

    @property
    def mask_rules(self) -> MaskRules:
        """All rules about data to hide; ``dlq.mask`` is one of them."""
        everywhere = MaskRule(fields=self.dlq.mask)
        return MaskRules((*self.mask, everywhere) if self.dlq.mask else self.mask)


def effective_kafka(
    config: Config,
    worker: WorkerConfig,
    client: Client,
    *,
    consumer_only: frozenset[str] = frozenset(),
    producer_only: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the Kafka properties of one client of a worker, with those of its login.

    Later ones override earlier ones: the file's common ones, the file's for this client, the
    worker's common ones, the worker's for this client. A consumer gets no common property of
    ``producer_only``, a producer none of ``consumer_only``, and an admin client none of either.
    """
    not_for_it = {
        "consumer": producer_only,
        "producer": consumer_only,
        "admin": consumer_only | producer_only,
    }[client]
    properties: dict[str, Scalar] = {}
    for part in (config.kafka, worker.kafka):
        own: Mapping[str, Scalar] = getattr(part, client)
        shared = {key: value for key, value in part.common.items() if key not in not_for_it}
        properties |= {**shared, **own}
    return with_login(properties, worker.kafka.login, config.kafka.login)
