"""The subscribers of a FastStream Kafka broker, run in our windows (the extra ``faststream``).

Stands on the public names of the package, as an application does. Only this folder knows
FastStream and aiokafka.
"""

from __future__ import annotations

from window_consumer.faststream.application import worker_of

__all__ = ["worker_of"]
