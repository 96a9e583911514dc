"""A Kafka cluster in memory: broker, group, topics, source and sink."""
