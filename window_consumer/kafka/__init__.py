"""Kafka behind the protocols of ``model``: the only floor that knows the client library."""
