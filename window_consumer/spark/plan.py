"""The pipeline's plan as plain values; ``config`` reads the file."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from attrs import field, frozen

from window_consumer.config.sections.kafka_properties import Scalar
from window_consumer.config.sections.mask import MaskRules

T = TypeVar("T")

BUCKETS: Final = 8
"""Buckets of the events table, by the hash of the root's id: a record's steps share one."""

GENERATION: Final = 10**9
"""Distance between the batch numbers of two generations in a table."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


@frozen(kw_only=True)
class PipelinePlan:
    """Where to read and write, and with which Spark."""

    kafka: Mapping[str, Scalar] = field(repr=False)
    """The consumer's properties, including secrets."""
    producer: Mapping[str, Scalar] = field(default=_NOTHING, repr=False)
    """The producer's properties, including secrets."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """All texts that must not appear in any output, see ``Mask``."""
    directory: str
    """The root of tables and checkpoints: a directory, or a URL that Spark and DuckDB support."""
    master: str | None = None
    spark: Mapping[str, str] = _NOTHING
    """Spark's properties."""
    mask: MaskRules = field(factory=MaskRules)
    """The parts of dead letters that must not be kept."""
    batch_records: int = 2_000
    """The most Kafka records in one batch; each holds thousands of events."""
    fail_on_data_loss: bool = True
    features: Mapping[type, Any] = MappingProxyType({})
    """The sections of features, by their classes."""

    def section(self, kind: type[T]) -> T:
        """Return the section of a feature; a plan that comes from no file has the defaults."""
        found: T | None = self.features.get(kind)
        return kind() if found is None else found

    def table(self, name: str) -> str:
        """Return a table's path."""
        return posixpath.join(self.directory, "tables", name)

    def checkpoint(self, name: str, generation: int = 0) -> str:
        """Return the path of a job's checkpoint; each restart begins a generation."""
        place = name if generation == 0 else f"{name}.{generation}"
        return posixpath.join(self.directory, "checkpoints", place)


def writer_of(job: str) -> str:
    """Return the name under which a job records its batches in its table."""
    return f"window_consumer.{job}"
