"""Watchdogs for a client that has lost its cluster or its assignment."""
