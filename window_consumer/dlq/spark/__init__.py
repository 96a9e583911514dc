"""Dead letters on Spark: their table, and the report's queries."""
