"""Schema Registry: a worker's values are read by the schemas that their producers have registered.

Only this package knows Confluent's registry client and deserialisers.
"""
