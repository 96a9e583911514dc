"""The simulator: the real engine against a simulated cluster, one schedule per seed."""
