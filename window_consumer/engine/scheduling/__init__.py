"""Which records start next: lanes, orderings, slices, batches and rates."""
