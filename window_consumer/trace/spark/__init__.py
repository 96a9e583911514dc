"""The trace on Spark: the table of events, and its search."""
