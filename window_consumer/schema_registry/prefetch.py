"""Fetches schemas outside the event loop, where a request would delay all other calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from attrs import frozen
from confluent_kafka.schema_registry import SchemaRegistryError

from window_consumer.model.errors import HandlerSignal
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.decoders import Decoder
from window_consumer.runtime.calls.layer import CallForm, CallSite, LayerPlace
from window_consumer.runtime.calls.steps import Called
from window_consumer.schema_registry.client import RegistryOutageError

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

_ID_HEADER = "__value_schema_id"
_ID_BYTES = {0: 5, 1: 17}
"""The length of a schema's id at the beginning of a value, by the value's first byte."""


class SchemaPrefetch:
    """Fetches the schemas of one handler's values, each once. Owner: one event loop."""

    def __init__(self, decode: Decoder):
        self._decode = decode
        self._known: set[bytes] = set()
        self._fetching: dict[bytes, asyncio.Task[None]] = {}

    async def of(self, records: list[Record]) -> None:
        """Wait until the schemas of these records are fetched, or known to be missing.

        Raises RegistryOutageError if the registry cannot be reached.
        """
        for record in records:
            schema = _id_of(record)
            if schema is not None and schema not in self._known:
                await asyncio.shield(self._fetch(schema, record))

    def _fetch(self, schema: bytes, record: Record) -> asyncio.Task[None]:
        task = self._fetching.get(schema)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetched(schema, record))
            self._fetching[schema] = task
            task.add_done_callback(partial(self._remove, schema))
        return task

    def _remove(self, schema: bytes, task: asyncio.Task[None]) -> None:
        del self._fetching[schema]
        if not task.cancelled():
            task.exception()  # waiters that still exist have it

    async def _fetched(self, schema: bytes, record: Record) -> None:
        if await asyncio.to_thread(self._is_there, record):
            self._known.add(schema)

    def _is_there(self, record: Record) -> bool:
        """Return whether the registry has the record's schema; decoding fetches it."""
        try:
            self._decode(record)
        except RegistryOutageError:
            raise
        except HandlerSignal as signal:
            # The value may be wrong although its schema exists.
            return not isinstance(signal.__cause__, SchemaRegistryError)
        return True


def _id_of(record: Record) -> bytes | None:
    """Return the id of a record's schema, or None."""
    in_header = record.header(_ID_HEADER)
    if in_header is not None:
        return in_header
    value = record.value
    length = _ID_BYTES.get(value[0]) if value else None
    return None if length is None or value is None else value[:length]


@frozen
class SchemaLayer:
    """Fetches schemas before coroutines are called; functions have threads, which may wait."""

    decoders: Mapping[str, Decoder]
    """By the name of the handler."""
    place: LayerPlace = LayerPlace.VALUES
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        decode = self.decoders.get(site.handler)
        if decode is None or not site.form.coroutines:
            return call
        prefetch, batches = SchemaPrefetch(decode), site.form.batches

        async def call_with_schemas(given: Any) -> object:
            await prefetch.of(given if batches else [given])
            return await call(given)

        return call_with_schemas
