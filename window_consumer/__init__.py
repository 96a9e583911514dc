"""Consume Kafka with a sliding window."""
