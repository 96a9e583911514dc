"""The data pipeline on Spark: what the topics of events say, as tables that can be asked.

Depends on ``model`` alone. Everything here may import pyspark; nothing else of the package does.
"""
