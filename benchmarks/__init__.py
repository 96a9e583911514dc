"""The framework's cost compared with a loop written by hand; see docs/benchmarks.md."""
