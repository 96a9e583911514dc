"""Effects that happen once: the table of ids, the transactions of calls, the cleaner."""
