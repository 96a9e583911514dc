"""The ``admin`` address: the live window in a browser, its JSON API, and manual interventions.

Access control, the API's data and the page belong here. It observes workers through ``runtime`` and
changes only what a user pauses or removes.
"""
