"""What the pipeline is to do, as plain values; the configuration of it is read elsewhere."""

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
"""Of the table of events, by the hash of the root's id: a record's whole way is in one."""

GENERATION: Final = 10**9
"""A table knows a batch by its own number, and so much more for each generation before."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


MaskOf = Callable[[Iterable[str | None]], FieldMask]
"""What hides what of a record, by the topics that it lies in and came from; None: not known."""


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
        """Whether values have to be looked at: to keep them, or for what texts quote of them."""
        return self.values or self.mask_of is not None

    def mask(self, topics: Iterable[str | None]) -> FieldMask:
        """Return what hides what of one record."""
        return FieldMask(()) if self.mask_of is None else self.mask_of(topics)


@frozen(kw_only=True)
class PipelinePlan:
    """Where to read, where to write, and with which Spark."""

    kafka: Mapping[str, str] = field(repr=False)
    """The client's properties, secrets among them."""
    directory: str
    """The root of tables and checkpoints: a directory, or an address that Spark and DuckDB know."""
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
    """The most Kafka records that one batch takes; each holds thousands of events."""
    fail_on_data_loss: bool = True
    keep_days: int = 30
    """Of the trace."""
    dlq_keep_days: int = 90

    @property
    def dlq_pattern(self) -> str:
        """What the whole names of dead-letter topics match, in Java."""
        names = [re.escape(name) for name in self.dlq_topics]
        return "|".join([*names, *(f"(?:{pattern}).*" for pattern in self.dlq_patterns)])

    def table(self, name: str) -> str:
        """Return where a table lies."""
        return posixpath.join(self.directory, "tables", name)

    def checkpoint(self, name: str, generation: int = 0) -> str:
        """Return where a job notes how far it has read; each restart begins a generation."""
        place = name if generation == 0 else f"{name}.{generation}"
        return posixpath.join(self.directory, "checkpoints", place)


def writer_of(job: str) -> str:
    """Return the name under which a job notes in its table which batches are in it."""
    return f"window_consumer.{job}"
