"""The kinds of pools that there are. A new one is a module and its name in ``KINDS``."""

from __future__ import annotations

from typing import Final

from window_consumer.runtime.pools.asyncio import ASYNCIO
from window_consumer.runtime.pools.pool import PoolKind
from window_consumer.runtime.pools.processes.pool import PROCESSES
from window_consumer.runtime.pools.threads import THREADS

KINDS: Final[dict[str, PoolKind]] = {kind.name: kind for kind in (THREADS, ASYNCIO, PROCESSES)}

DEFAULT: Final = THREADS
"""What a worker has that names none."""


def configurable() -> list[str]:
    """Return what ``pool`` may be in a configuration."""
    return [kind.name for kind in KINDS.values() if kind.runs_functions]


def kind_for(pool: str, *, coroutines: bool) -> PoolKind | None:
    """Return the kind that runs the calls of a worker with this ``pool``.

    None where its handlers are coroutines and workers with this ``pool`` cannot have such.
    """
    kind = KINDS[pool]
    if not coroutines:
        return kind
    return None if kind.coroutines_on is None else KINDS[kind.coroutines_on]
