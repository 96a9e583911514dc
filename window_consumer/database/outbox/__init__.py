"""The outbox: rows written in a transaction, which a relay sends to Kafka after the commit."""
