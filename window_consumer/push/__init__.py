"""Push: the handler of a worker is a URL, to which its records are posted."""
