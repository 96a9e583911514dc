"""The threads that carry out the Engine's decisions: poll loop, slots, publisher, start and stop.

Ownership: the poll thread owns the Source, the Engine and everything in it. Slots own nothing: they
take a slice from the work queue and put it on the completions queue. Only these two queues and one
stop event cross between threads.
"""
