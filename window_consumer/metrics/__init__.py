"""What workers report to the outside. This folder listens and never decides."""
