"""Scenes that judge the circuit breaker on a real Kafka: the benchmark ``breaker-scenes``.

Each variant of a scene is a worker, the records it gets, and a service that fails in some way.
Handlers sleep, so several variants run at the same time, each in a separate process.
"""
