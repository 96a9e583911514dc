"""The rules, apart from all I/O: windows, lanes, slices, the ladder, commits, and their Engine.

The engine has no threads, clock or randomness of its own: ``now`` (seconds of a monotonic clock)
and events come in, decisions go out. The poll thread owns everything here except what
``slices.Slice`` shares with a slot.
"""
