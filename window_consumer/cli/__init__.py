"""The command line: the only place that installs signal handlers and logging."""
