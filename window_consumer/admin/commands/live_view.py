"""The live window in the terminal: each partition's cells, sliding as they complete.

``demo`` and ``top`` share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType

from window_consumer.admin.commands.screen import TopScene
from window_consumer.admin.commands.window_table import USUAL_NAME, legend, window_table
from window_consumer.admin.commands.worker_lines import line, worker_lines
from window_consumer.engine.windows_snapshot import PartitionSnapshot

_SHOWN_ENTRIES: Final = 4
"""The most parked keys, and classes, in a terminal whose height matters."""
_LEAST_PARTITIONS: Final = 4
"""The fewest partitions per worker, even in a low terminal."""
_LINES_A_WORKER: Final = 10
"""The approximate number of lines per worker, apart from its partitions."""


def view(scene: TopScene, width: int = 80, height: int | None = None) -> RenderableType:
    """Draw the windows of all workers for a terminal of this width.

    If ``height`` lines are too few for all partitions, the worst ones are shown.
    """
    most = _most_partitions(scene, height)
    parts: list[RenderableType] = [line(f"{scene.title}  {scene.seconds:5.1f} s", "bold"), legend()]
    for worker in scene.workers:
        snapshot = worker.snapshot
        shown = _in_most_trouble(snapshot.partitions, most)
        heading = worker.name
        if len(heading) > USUAL_NAME:
            parts.append(line(heading, "bold"))
            heading = "partition"
        parts.append(window_table(heading, shown, width))
        if len(shown) < len(snapshot.partitions):
            parts.append(line(f"  and {len(snapshot.partitions) - len(shown)} more", "dim"))
        parts.extend(worker_lines(worker, None if height is None else _SHOWN_ENTRIES))
    parts.extend(line(f"{name}: {why}", "bold red") for name, why in scene.gone.items())
    return Group(*parts)


def _most_partitions(scene: TopScene, height: int | None) -> int | None:
    if height is None or not scene.workers:
        return None
    left = height - 2 - len(scene.gone)
    return max(_LEAST_PARTITIONS, left // len(scene.workers) - _LINES_A_WORKER)


def _in_most_trouble(
    partitions: Sequence[PartitionSnapshot], most: int | None
) -> Sequence[PartitionSnapshot]:
    if most is None or len(partitions) <= most:
        return partitions
    worst = sorted(partitions, key=_trouble, reverse=True)[:most]
    return [each for each in partitions if each in worst]


def _trouble(partition: PartitionSnapshot) -> tuple[float, float, int]:
    return partition.hovering_s, partition.lag.seconds, partition.lag.records or 0
