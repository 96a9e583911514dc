"""Backfills: run a worker's own handler over a bounded range of a topic, on Spark's executors."""
