"""Replay and rewind: their rules, and the commands on the embedded broker and on Kafka."""
