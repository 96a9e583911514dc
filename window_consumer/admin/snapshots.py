"""Pictures of workers as plain values, which JSON can carry, and back.

Who looks from another process sees what one in the process would see.
"""

from __future__ import annotations

from typing import Any, Final

import cattrs

from window_consumer.engine.snapshot import Snapshot
from window_consumer.model.record import TopicPartition


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_unstructure_hook(TopicPartition, TopicPartition._asdict)
    converter.register_structure_hook(TopicPartition, _name_of)
    return converter


def _name_of(fields: Any, _: object) -> TopicPartition:
    return TopicPartition(str(fields["topic"]), int(fields["partition"]))


_CONVERTER: Final = _converter()


def plain(snapshot: Snapshot) -> dict[str, Any]:
    """Return a picture as numbers, texts, lists and dictionaries, by the names of its fields.

    Durations are seconds.
    """
    fields: dict[str, Any] = _CONVERTER.unstructure(snapshot)
    return fields


def snapshot_of(fields: Any) -> Snapshot:
    """Return the picture that ``plain`` made these of; what is unknown here is left out.

    Raises ValueError where it is none, or one of a version that has other fields.
    """
    try:
        return _CONVERTER.structure(fields, Snapshot)
    except Exception as error:
        # Whatever the fields are, there is but one thing that a caller can do.
        raise ValueError("this is no picture of a worker, or one of another version") from error
