"""The plan of topics and ACLs as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class TopicsFeature(Feature):
    """The plan of topics and ACLs."""

    name = "topics"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"topics": "window_consumer.topics.cli:topics_group"}
    )
