"""The demo as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class DemoFeature(Feature):
    """The demo of a shop that misbehaves."""

    name = "demo"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"demo": "window_consumer.demo.cli:demo_command"}
    )
