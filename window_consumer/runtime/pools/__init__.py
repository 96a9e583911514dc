"""The kinds of pools that a worker may have."""
