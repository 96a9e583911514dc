"""Workers whose handlers get lists of records: what has to fit together."""

from __future__ import annotations

from collections.abc import Sequence

from window_consumer.app.handlers import HandlerSpec
from window_consumer.config import BatchConfig, Loaded, WorkerConfig
from window_consumer.model.errors import ConfigError


def check_batches(loaded: Loaded, worker: WorkerConfig, handlers: Sequence[HandlerSpec]) -> None:
    """Raise ConfigError for handlers of both kinds in one worker, and keys that make no sense."""
    batch = [each.name for each in handlers if each.is_batch]
    plain = [each.name for each in handlers if not each.is_batch]
    path = ("workers", worker.name)
    if batch and plain:
        raise ConfigError(
            f"{loaded.where((*path, 'handler'))}: workers.{worker.name}.handler: {batch[0]} is a"
            f" batch handler and {plain[0]} is none: one worker runs handlers of one kind; give"
            " each kind a worker and a group of its own, or make both batch handlers"
        )
    if plain and worker.batch != BatchConfig():
        raise ConfigError(
            f"{loaded.where((*path, 'batch'))}: workers.{worker.name}.batch: {plain[0]} gets one"
            " record a call: take batch out, or decorate the handler with @app.batch_handler"
        )
    records = worker.window.cells * worker.window.cell_records
    if batch and worker.batch.max_records > records:
        raise ConfigError(
            f"{loaded.where((*path, 'batch', 'max_records'))}: workers.{worker.name}.batch."
            f"max_records: is {worker.batch.max_records}, and a partition's window holds {records}"
            " records: no batch would ever be full; write less, or more window.cells or"
            " window.cell_records"
        )
