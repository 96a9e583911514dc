"""Dead letters as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class DlqFeature(Feature):
    """Dead letters."""

    name = "dlq"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"dlq": "window_consumer.dlq.cli:dlq_group"}
    )
