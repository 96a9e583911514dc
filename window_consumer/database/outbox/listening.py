"""Listens for commits of other processes with PostgreSQL's LISTEN, and wakes the relay.

A lost notification only delays a row until the next poll.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import sqlalchemy as sa
from attrs import define

from window_consumer.database.outbox.wakeup import WakeUp
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

THREAD: Final = "wc-outbox-listen"
_CHECK_S: Final = 0.5
"""How soon the thread notices a stop."""

_PROBE_S: Final = 30.0
"""After this long without a notification the connection is probed: the host may have vanished."""

_AGAIN_S: Final = 5.0

_log = own_logger()


@define
class CommitListener:
    """Wakes a relay whenever a transaction that notifies its channel is committed.

    Owner: the thread that calls ``run``. It has its own connection, and reconnects when that ends.
    """

    _engine: sa.Engine
    _channel: str
    _wake_up: WakeUp
    _stop: threading.Event

    def run(self) -> None:
        """Listen until ``stop`` is set."""
        while not self._stop.is_set():
            try:
                with self._engine.connect() as connection:
                    self._listen(connection.execution_options(isolation_level="AUTOCOMMIT"))
            except Exception as error:  # of the driver or SQLAlchemy; the relay polls now
                _log.warning(
                    "outbox: cannot listen for commits of other processes, polling instead: %s",
                    str(getattr(error, "orig", None) or error).strip(),
                    extra={"event": LogEvent.OUTBOX_NOT_LISTENING},
                )
                self._engine.dispose()
                self._stop.wait(_AGAIN_S)
        self._engine.dispose()

    def _listen(self, connection: sa.Connection) -> None:
        quoted = connection.dialect.identifier_preparer.quote_identifier(self._channel)
        connection.exec_driver_sql(f"LISTEN {quoted}")
        self._wake_up.set()  # for earlier commits
        driver: Any = connection.connection.driver_connection
        quiet_s = 0.0
        while not self._stop.is_set():
            if list(driver.notifies(timeout=_CHECK_S, stop_after=1)):
                quiet_s = 0.0
                self._wake_up.set()
                continue
            quiet_s += _CHECK_S
            if quiet_s >= _PROBE_S:
                quiet_s = 0.0
                connection.exec_driver_sql("SELECT 1")
