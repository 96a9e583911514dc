"""The audit: counts of what was written and of what became of it, by time, that can be compared."""
