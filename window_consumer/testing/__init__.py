"""The test kit: brokers, a clock, guarantees and the simulator, for users' tests and for ours.

``EmbeddedBroker`` is what a test of an application needs most; the other parts are imported from
their modules.
"""

from __future__ import annotations

from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord

__all__ = ["EmbeddedBroker", "NewRecord"]
