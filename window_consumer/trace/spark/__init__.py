"""The trace on Spark: the table of events, and searching it."""
