"""How a worker acquires, starts and releases partitions."""
