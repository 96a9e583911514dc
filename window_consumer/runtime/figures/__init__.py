"""What a worker shows of itself: its snapshot, figures over time, and stacks."""
