"""Writing to Kafka: rules without I/O, and the client that they drive.

``client_state`` and the modules about records decide, without threads, clocks and client library.
``client`` sends. A user's thread reports events to the rules and carries out their decisions.
"""
