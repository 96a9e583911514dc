"""The configuration: one YAML file, decorators' defaults and ``--set``, checked at the start.

Nothing here needs a cluster, a handler or a client. ``kafka`` knows which Kafka properties exist
and which are forbidden; ``app`` resolves dotted exception names.
"""

from __future__ import annotations

from window_consumer.config.docs import config_page, example
from window_consumer.config.json_schema import json_schema
from window_consumer.config.loading import LoadedConfig, load
from window_consumer.config.schema import Config, effective_kafka
from window_consumer.config.sections import (
    BatchConfig,
    DlqConfig,
    ErrorsConfig,
    ExceptionName,
    RetryConfig,
    TopicsConfig,
    WindowConfig,
)
from window_consumer.config.sections.guards import BreakerConfig, StallConfig
from window_consumer.config.sections.kafka_properties import (
    Client,
    KafkaConfig,
    Scalar,
    is_secret_key,
)
from window_consumer.config.sections.mask import MaskRule, MaskRules
from window_consumer.config.sections.topic_names import ENTRY, TopicNames
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.units import format_duration
from window_consumer.model.redaction import Mask

__all__ = [
    "ENTRY",
    "BatchConfig",
    "BreakerConfig",
    "Client",
    "Config",
    "DlqConfig",
    "ErrorsConfig",
    "ExceptionName",
    "KafkaConfig",
    "LoadedConfig",
    "Mask",
    "MaskRule",
    "MaskRules",
    "RetryConfig",
    "Scalar",
    "StallConfig",
    "TopicNames",
    "TopicsConfig",
    "WindowConfig",
    "WorkerConfig",
    "config_page",
    "effective_kafka",
    "example",
    "format_duration",
    "is_secret_key",
    "json_schema",
    "load",
]
