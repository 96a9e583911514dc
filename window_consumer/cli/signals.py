"""What signals request from a command that runs until it is stopped."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from attrs import frozen

from window_consumer.cli.output import INTERRUPTED
from window_consumer.runtime.replica import join_supervisor, number_of_this_copy


@frozen
class Signals:
    """What signals have requested."""

    stop: threading.Event
    picture: threading.Event

    @classmethod
    def install(cls) -> Signals:
        """Handle SIGTERM and SIGINT (first: drain, second: end at once) and SIGUSR1 (dump).

        A replica drains on every signal: the same signal may reach it in several ways, and its
        supervisor kills it if it must end at once.
        """
        signals = cls(threading.Event(), threading.Event())
        is_copy = bool(number_of_this_copy())

        def on_stop(_number: int, _frame: FrameType | None) -> None:
            if signals.stop.is_set() and not is_copy:
                os._exit(INTERRUPTED)
            signals.stop.set()

        def on_picture(_number: int, _frame: FrameType | None) -> None:
            signals.picture.set()

        signal.signal(signal.SIGTERM, on_stop)
        signal.signal(signal.SIGINT, on_stop)
        signal.signal(signal.SIGUSR1, on_picture)
        join_supervisor()
        return signals
