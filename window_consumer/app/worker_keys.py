"""A worker's keys as arguments of a decorator, so that editors and type checkers know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class WorkerKeys(TypedDict, total=False):
    """Defaults for a worker, with the names, units and meaning of the configuration's keys.

    ``fatal`` and ``retryable`` stand for those below ``retry``.
    """

    patterns: Sequence[str]
    group: str
    ordering: Literal["unordered", "key", "partition"]
    concurrency: int | Literal["auto"] | Mapping[str, str]
    rate_per_process: str | Mapping[str, Any]
    pool: Literal["threads", "processes"]
    memory: str
    window: Mapping[str, int]
    commit_interval: str
    revoke_timeout: str
    stop_timeout: str
    retry: Mapping[str, Any]
    fatal: Sequence[type[BaseException] | str]
    retryable: Sequence[type[BaseException] | str]
    otherwise: Literal["dead_letter", "skip", "stop"]
    ttl: str | Mapping[str, str]
    on_expired: Literal["dead_letter", "drop"]
    breaker: Mapping[str, Any]
    stall: Mapping[str, Any]
    on_no_offset: Literal["earliest", "latest", "fail"]
    on_out_of_range: Literal["fail", "earliest", "latest"]
    kafka: Mapping[str, Any]
