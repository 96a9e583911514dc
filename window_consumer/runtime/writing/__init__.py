"""What a worker writes: copies, results and commits, each by itself or in transactions."""
