"""The subscribers of a FastStream Kafka broker, run in our windows (the extra ``faststream``).

It uses only public names of the package, like an application. Only this folder knows FastStream and
aiokafka.
"""

from __future__ import annotations

from importlib.util import find_spec

from window_consumer import UsageError

if find_spec("faststream") is None:
    raise UsageError(
        "window_consumer.faststream needs FastStream: pip install 'window-consumer[faststream]'"
    )

from window_consumer.faststream.application import worker_of

__all__ = ["worker_of"]
