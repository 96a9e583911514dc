"""The choice of records that start next: lanes, orderings, slices, batches and rates."""
