"""The kinds of slots that a worker may have."""
