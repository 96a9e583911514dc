"""One real Kafka for all processes of a run: pytest's first process starts and ends it.

A Kafka compiles the same code in each process again, and takes two hundredths of a core while it
is idle.
"""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread
from typing import Any

from attrs import define, field

from tests.waiting import wait_until
from window_consumer.model.errors import WindowConsumerError
from window_consumer.testing.real_kafka import KafkaUnavailableError, RealKafka
from window_consumer.testing.real_kafka_settings import Settings

NEVER_FENCED: Settings = {"broker.session.timeout.ms": 120_000}
"""A machine that is busy for a few seconds does not take the broker from its controller."""

PLACE = "kafka"
"""The key of ``workerinput`` under which a process finds the directory."""

_WANTED = "wanted"
_STARTED = "kafka.json"
_ASK_S = 0.2
_DEADLINE_S = 300.0


@define
class SharedKafka:
    """A Kafka that starts when a process of the run wants it, at most once.

    Owner: the thread that made it.
    """

    directory: Path
    _ended: Event = field(factory=Event, init=False)
    _starting: Thread = field(init=False)
    _kafka: RealKafka | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.directory.mkdir()
        self._starting = Thread(target=self._start_when_wanted, name="shared-kafka")
        self._starting.start()

    def end(self) -> None:
        """Kill Kafka, if it was wanted."""
        self._ended.set()
        self._starting.join()
        if self._kafka is not None:
            self._kafka.kill()

    def _start_when_wanted(self) -> None:
        # Other processes want it: there is nothing to be notified by.
        while not (self.directory / _WANTED).exists():
            if self._ended.wait(_ASK_S):
                return
        unfinished = self.directory / "unfinished"
        unfinished.write_text(json.dumps(self._start()))
        unfinished.rename(self.directory / _STARTED)

    def _start(self) -> dict[str, Any]:
        try:
            self._kafka = RealKafka.start(self.directory, NEVER_FENCED)
        except WindowConsumerError as error:
            return {"error": str(error)}
        addresses = [self._kafka.bootstrap, self._kafka.sasl_bootstrap]
        return {"addresses": addresses, "passwords": self._kafka.passwords}


def attach(directory: Path) -> RealKafka:
    """Return the Kafka of a run without its process; it is started if it is the first time.

    Raises KafkaUnavailableError with what its start raised.
    """
    (directory / _WANTED).touch()
    started = directory / _STARTED
    wait_until(started.is_file, _DEADLINE_S, "the Kafka of the run has started")
    answer = json.loads(started.read_text())
    if "error" in answer:
        raise KafkaUnavailableError(answer["error"])
    kafka = RealKafka(directory, {}, [*answer["addresses"], ""], java=())
    kafka.passwords.update(answer["passwords"])
    return kafka
