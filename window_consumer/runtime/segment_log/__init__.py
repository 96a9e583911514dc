"""A log on disk of what waits for its topic: bounded, append-only, cut into segments.

A segment is a file of records, each on a line of its own. Whoever began it appends to it until it
is closed. A closed segment is deleted, as a whole, once the brokers have acked all its records; so
after a crash at most the records of one segment come twice. A line without its end, or with bytes
that its feature cannot read, is torn: it is left out and counted, the others are shipped. Features
choose what a record is, where segments lie, and how much they may hold.
"""
