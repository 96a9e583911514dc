"""The threads that carry the Engine's decisions out: poll loop, slots, publisher, start and stop.

Ownership: the poll thread owns the Source, the Engine and everything in it. Slots own nothing,
they get a slice from the work queue and put it on the completions queue. Those two queues and
one stop event are all that crosses.
"""
