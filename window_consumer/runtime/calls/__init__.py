"""Calls of handlers for a slice, and the layers around handlers."""
