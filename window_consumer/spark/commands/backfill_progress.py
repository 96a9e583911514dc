"""Shows a backfill's progress: a bar on a terminal, regular lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import IO, TYPE_CHECKING

import click
from attrs import define
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from window_consumer.cli.output import duration
from window_consumer.model.redaction import printable_line

if TYPE_CHECKING:
    from window_consumer.spark.backfill import backlog

_LINE_S = 10.0
"""Time between lines, so that readers of a log see that the backfill is alive."""


@define
class ProgressDisplay:
    """Shows the progress of a backfill. Any thread may call it, one at a time."""

    _bar: Progress | None
    _task: TaskID | None
    _printed_at: float = 0.0
    _done: int = -1

    @classmethod
    @contextmanager
    def on(cls, stream: IO[str], name: str) -> Iterator[ProgressDisplay]:
        """Yield a display on this stream."""
        console = Console(file=stream)
        if not console.is_terminal:
            yield cls(None, None)
            return
        columns = (BarColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=console, transient=True) as bar:
            yield cls(bar, bar.add_task(printable_line(name), total=None))

    def show(self, progress: backlog.BackfillProgress) -> None:
        """Show the progress: at once on a terminal; elsewhere regularly, and after each chunk."""
        text = in_words(progress)
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, completed=progress.reached, total=progress.total, description=text
            )
            return
        moved = progress.done > self._done
        if moved or monotonic() - self._printed_at >= _LINE_S:
            self._printed_at, self._done = monotonic(), progress.done
            click.echo(text, err=True)


def in_words(progress: backlog.BackfillProgress) -> str:
    """Return the progress in one line."""
    share = progress.reached / progress.total if progress.total else 1.0
    parts = [f"{progress.reached:,} of {progress.total:,} ({share:.0%})"]
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if progress.per_s:
        left_s = (progress.total - progress.reached) / progress.per_s
        parts.append(f"{progress.per_s:,.0f}/s, {duration(left_s)} left")
    ended, tasks = progress.tasks
    if tasks:
        parts.append(f"chunk: {ended} of {tasks} tasks")
    if progress.held_up:
        parts.append(f"breaker open in {progress.held_up} of them")
    if progress.retried:
        parts.append(f"{progress.retried} retried")
    return "; ".join(parts)
