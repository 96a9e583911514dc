"""Kafka behind the protocols of ``model``. Only this folder knows the client library."""
