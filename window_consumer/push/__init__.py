"""Push: a worker's handler is a URL to which its records are posted."""
