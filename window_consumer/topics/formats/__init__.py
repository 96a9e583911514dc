"""The formats of a topic plan, one module each."""
