"""What is kept of dead letters: a choice as plain values, which goes to the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import field, frozen

from window_consumer.model.field_mask import FieldMask
from window_consumer.model.key_forms import KeyMode

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
