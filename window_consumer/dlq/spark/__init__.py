"""Dead letters on Spark: their table, and what they have in common."""
