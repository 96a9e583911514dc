"""What an application is before it runs: its definition, its plan, its topics.

Features and ``app`` build on it. It knows neither.
"""
