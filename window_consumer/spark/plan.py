"""The pipeline's plan as plain values; other modules read the configuration."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from attrs import field, frozen

from window_consumer.model.field_mask import FieldMask
from window_consumer.model.key_forms import KeyMode

BUCKETS: Final = 8
"""Buckets of the events table, by the hash of the root's id: a record's steps share one."""

GENERATION: Final = 10**9
"""Distance between the batch numbers of two generations in a table."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


MaskOf = Callable[[Iterable[str | None]], FieldMask]
"""Returns a record's mask by its present and original topics; None means unknown."""


@frozen(kw_only=True)
class Reading:
    """What is kept of dead letters, and how."""

    mask_of: MaskOf | None = None
    """None hides nothing."""
    keys: KeyMode = "raw"
    key_secret: bytes = field(default=b"", repr=False)
    values: bool = False
    """Whether the beginnings of values are kept."""

    @property
    def needs_values(self) -> bool:
        """Whether values must be read: to keep them, or to mask quotes of them in texts."""
        return self.values or self.mask_of is not None

    def mask(self, topics: Iterable[str | None]) -> FieldMask:
        """Return the mask for one record."""
        return FieldMask(()) if self.mask_of is None else self.mask_of(topics)


@frozen(kw_only=True)
class PipelinePlan:
    """Where to read, where to write, and with which Spark."""

    kafka: Mapping[str, str] = field(repr=False)
    """The client's properties, secrets among them."""
    directory: str
    """The root of tables and checkpoints: a directory, or a URL that Spark and DuckDB support."""
    master: str | None = None
    spark: Mapping[str, str] = _NOTHING
    """Spark's properties."""
    trace_topic: str = "wc.trace"
    audit_topic: str = "wc.audit"
    dlq_topics: tuple[str, ...] = ()
    dlq_patterns: tuple[str, ...] = (r"^.+\.dlq$",)
    """Searched in the names of topics."""
    dlq_reading: Reading = field(factory=Reading)
    """What is kept of dead letters."""
    batch_records: int = 2_000
    """The most Kafka records in one batch; each holds thousands of events."""
    fail_on_data_loss: bool = True
    keep_days: int = 30
    """Days that the trace is kept."""
    dlq_keep_days: int = 90

    @property
    def dlq_pattern(self) -> str:
        """A Java pattern for the whole names of dead-letter topics."""
        names = [re.escape(name) for name in self.dlq_topics]
        return "|".join([*names, *(f"(?:{pattern}).*" for pattern in self.dlq_patterns)])

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
