"""How a worker gets partitions, starts them and gives them up."""
