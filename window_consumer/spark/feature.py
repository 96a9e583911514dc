"""The pipeline and the backfill as a feature, which has only commands."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from window_consumer.plan.feature import Feature


class SparkFeature(Feature):
    """The pipeline and the backfill."""

    name = "spark"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "backfill": "window_consumer.spark.commands.backfill_command:backfill_command",
            "pipeline": "window_consumer.spark.cli:pipeline_group",
        }
    )
