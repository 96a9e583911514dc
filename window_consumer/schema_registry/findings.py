"""The findings of ``check --connect`` in registries: the subjects of the workers' topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from window_consumer.config import WorkerConfig
from window_consumer.model.errors import RunError, UsageError
from window_consumer.schema_registry.client import RegistryClient, RegistryOutageError
from window_consumer.schema_registry.config import SchemaConfig


@frozen
class RegistryFindings:
    """A registry's answer about the values of one topic."""

    worker: str
    registry: str
    subject: str
    version: int | None
    """The latest version; None if there is no such subject."""
    schema_id: int | None

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        yield f"{self.worker}: {self.registry}"
        if self.version is None:
            yield (
                f"  has no subject {self.subject}: producers of the topic have registered nothing"
                " yet, or name subjects by records"
            )
        else:
            yield f"  has {self.subject}, version {self.version} with the id {self.schema_id}"


def registries_of(workers: Sequence[WorkerConfig]) -> Iterator[RegistryFindings]:
    """Yield the registries' answers about the workers' topics.

    Raises UsageError for a subject of another format, RunError for a registry that does not answer.
    """
    for worker in workers:
        section = worker.section(SchemaConfig)
        if section.registry:
            client = RegistryClient(section)
            for topic in worker.topics:
                yield _findings(worker.name, client, f"{topic}-value", section)


def _findings(
    worker: str, client: RegistryClient, subject: str, section: SchemaConfig
) -> RegistryFindings:
    try:
        latest = client.latest_of(subject)
    except RegistryOutageError as error:
        raise RunError(f"{worker}: schema.registry: {error}") from error
    if latest is None:
        return RegistryFindings(worker, client.where, subject, None, None)
    if not client.is_of_format(latest.schema):
        raise UsageError(
            f"{worker}: schema.format is {section.format}, but the schemas of {subject} in"
            f" {client.where} are of type {latest.schema.schema_type}: correct schema.format"
        )
    return RegistryFindings(worker, client.where, subject, latest.version, latest.schema_id)
