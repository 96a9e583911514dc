"""The simulator as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class SimulatorFeature(Feature):
    """The simulator."""

    name = "simulator"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"simulate": "window_consumer.simulator.cli:simulate_command"}
    )
