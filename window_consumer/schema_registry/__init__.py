"""Schema Registry: reads a worker's values by the schemas that their producers registered.

Only this package knows Confluent's registry client and deserialisers.
"""
