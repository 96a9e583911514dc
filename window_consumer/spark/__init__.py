"""The data pipeline on Spark: turns topics of events into tables that can be queried.

Outside the folders called ``spark``, pyspark is imported only when a command runs.
"""
