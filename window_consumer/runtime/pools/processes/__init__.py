"""Slots that are child processes."""
