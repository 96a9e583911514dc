"""Other consumers on the same topics: ``python -m benchmarks peers``, see docs/lab/peers.md."""
