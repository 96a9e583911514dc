"""Durations on the command line."""

from __future__ import annotations

from typing import Any

import click

from window_consumer.config.units import UnitError, parse_duration


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
        except UnitError as error:
            hint = f"; {error.hint}" if error.hint else ""
            self.fail(f"{value!r} {error}{hint}", param, ctx)
