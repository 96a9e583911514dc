"""The audit: comparable counts, by time, of what was written and what became of it."""
