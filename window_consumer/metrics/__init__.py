"""What workers tell of themselves to the outside. It listens and never decides."""
