"""A log on disk of records that wait for their topic: bounded, append-only, cut into segments.

A segment is a file with one record a line. The writer that began it appends to it until it is
closed. A closed segment is deleted as a whole once the brokers have acked all its records, so after
a crash at most one segment's records are sent twice. A line without an end, or with bytes that its
feature cannot read, is torn: it is omitted and counted, and the others are shipped. Features choose
the records, the place of segments, and their size limit.
"""
