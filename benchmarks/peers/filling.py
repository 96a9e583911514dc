"""Fills the peers' topics, once per Kafka."""

from __future__ import annotations

from benchmarks.peers.contents import Contents, fill, key_bytes
from benchmarks.records import Writer
from benchmarks.topics import Say, Topics


def filled(topics: Topics, contents: Contents, say: Say) -> str:
    """Return a topic with exactly these contents; fill it if necessary."""
    name, held = contents.name, fill(contents)
    ends = dict(enumerate(held.log_ends))
    if topics.exists(name):
        if topics.log_ends(name) == ends:
            return name
        say(f"{name} is incomplete: deleting it")
        topics.delete(name)
    say(f"filling {name} with {contents.records:,} records")
    topics.make(name, contents.partitions)
    writer = Writer(topics.bootstrap, name)
    for partition, key, value in zip(held.partitions, held.keys, held.values(), strict=True):
        writer.write(partition, key_bytes(key), value)
    writer.finish()
    return name
