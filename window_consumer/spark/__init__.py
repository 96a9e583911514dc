"""The data pipeline on Spark: turns the topics of events into tables that can be queried.

Only modules below ``spark`` folders import pyspark.
"""
