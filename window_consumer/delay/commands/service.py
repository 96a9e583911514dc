"""The delay service of a configuration, for commands that run separately from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from window_consumer.config import LoadedConfig, WorkerConfig, load
from window_consumer.delay.config import WORKER, DelayConfig
from window_consumer.kafka.log_writer import PlainWriter
from window_consumer.model.errors import ConfigError, MissingTopicError
from window_consumer.model.produce import Produce
from window_consumer.model.protocols import Copy
from window_consumer.plan.clients import Clients
from window_consumer.plan.feature_list import FeatureList


@frozen
class ConfiguredService:
    """A delay service as described in a file."""

    loaded: LoadedConfig
    section: DelayConfig
    worker: WorkerConfig

    @classmethod
    def load(
        cls, config: Path, overrides: Sequence[str], features: FeatureList
    ) -> ConfiguredService:
        """Load it; raise ConfigError if the file has none."""
        loaded = load(config, {}, overrides, sections=features.sections, only_section=WORKER)
        section = loaded.config.section(DelayConfig)
        if not section.to:
            where = loaded.where((WORKER,))
            raise ConfigError(f"{where}: there is no delay service: delay.to is missing")
        return cls(loaded, section, loaded.config.workers[WORKER])

    def connect(self, timeout_s: float) -> Clients:
        """Return clients for its cluster; raises what ``Clients.connect`` raises."""
        return Clients.connect(self.loaded, self.worker, None, timeout_s)

    def send(self, record: Produce, client: str, timeout_s: float) -> None:
        """Write a record; return once it is acked by all in-sync replicas.

        Raises MissingTopicError, and what ``connect`` and ``LogWriter`` raise.
        """
        clients = self.connect(timeout_s)
        if record.topic not in clients.cluster.topics([record.topic]):
            raise MissingTopicError(
                f"the cluster at {clients.cluster.bootstrap} has no topic {record.topic}: start the"
                " service, which creates it (window-consumer delay run)"
            )
        writer = PlainWriter(clients.producer, client, clients.log, clients.oauth_token)
        try:
            writer.send([Copy(record.topic, None, record.key, record.value, list(record.headers))])
            for refusal in writer.acks().values():
                raise refusal
        finally:
            writer.close()
