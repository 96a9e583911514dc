"""Replay and rewind as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class ReplayFeature(Feature):
    """Replay and rewind."""

    name = "replay"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "replay": "window_consumer.replay.commands.replay:replay_command",
            "rewind": "window_consumer.replay.commands.rewind:rewind_command",
        }
    )
