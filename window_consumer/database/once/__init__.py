"""Effects that happen once: the table of ids, transactions of calls, deletion of old ids."""
