"""What the framework costs beside a loop written by hand; see docs/benchmarks.md."""
