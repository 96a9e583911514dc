"""A worker's own figures: its snapshot, figures over time, and stacks."""
