"""Durations on the command line."""

from __future__ import annotations

from typing import Any

import click

from window_consumer.config.units import parse_duration


class Duration(click.ParamType[float]):
    """A duration with its unit, as in the configuration."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
