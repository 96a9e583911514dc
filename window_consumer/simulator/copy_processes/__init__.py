"""Processes that copy records into the entry topics, beside a simulated group."""
