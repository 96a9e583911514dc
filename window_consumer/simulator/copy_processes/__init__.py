"""Processes that copy records into the entry topics while a simulated group runs."""
