"""The words: records, outcomes, errors, wire names and the protocols between the floors.

What belongs here is shared by several floors and imports none of them. Rules about these words
belong in ``core``, everything that talks to Kafka in ``kafka``.
"""
