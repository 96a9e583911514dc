"""One program for each kind of peer; they run in the peers' own environments.

So nothing here imports more than the standard library and the peer itself. ``trial`` has what all
of them share: arguments, handlers that note, and the answer.
"""
