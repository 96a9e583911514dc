"""The delay service."""
