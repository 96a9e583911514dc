"""Projects as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class ProjectFeature(Feature):
    """New projects, and additions to them."""

    name = "project"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "init": "window_consumer.project.cli:init_command",
            "new": "window_consumer.project.cli:new_group",
        }
    )
