"""Writing to Kafka: rules without I/O, the client, and what drives one by the other.

``client_state`` and the modules about records decide; they know no thread, clock or client library.
``client`` sends. A user's thread reports events to the rules and carries out what they answer.
"""
