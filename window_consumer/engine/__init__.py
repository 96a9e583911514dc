"""The rules, apart from all I/O: windows, lanes, slices, the ladder, commits, and their Engine.

No thread, no clock, no randomness of its own lives here: ``now`` (seconds of a monotonic clock)
and events come in, decisions go out. Everything here is owned by the poll thread, with the one
exception that ``slices.Slice`` describes.
"""
