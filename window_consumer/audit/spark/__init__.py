"""The audit on Spark: from counts to a balance and its findings."""
