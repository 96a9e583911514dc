"""One program for each kind of peer; they run in the peers' own environments.

So they import only the standard library and the peer itself. ``trial`` has what they share:
arguments, recording handlers, and the result.
"""
