"""The command line: the one place that installs signal handlers and logging."""
