"""The kinds of pools. To add one, write a module and add it to ``KINDS``."""

from __future__ import annotations

from typing import Final

from window_consumer.runtime.pools.asyncio import ASYNCIO
from window_consumer.runtime.pools.lease_pool import LEASES
from window_consumer.runtime.pools.pool import PoolKind
from window_consumer.runtime.pools.processes.pool import PROCESSES
from window_consumer.runtime.pools.threads import THREADS

KINDS: Final[dict[str, PoolKind]] = {
    kind.name: kind for kind in (THREADS, ASYNCIO, PROCESSES, LEASES)
}

DEFAULT: Final = THREADS
"""The kind of workers that name none."""


def configurable() -> list[str]:
    """Return the values that ``pool`` may have in a configuration."""
    return [kind.name for kind in KINDS.values() if kind.runs_functions]


def kind_for(pool: str, *, coroutines: bool) -> PoolKind | None:
    """Return the kind that runs the calls of a worker with this ``pool``.

    None if its handlers are coroutines and this ``pool`` cannot run them.
    """
    kind = KINDS[pool]
    if not coroutines:
        return kind
    return None if kind.coroutines_on is None else KINDS[kind.coroutines_on]
