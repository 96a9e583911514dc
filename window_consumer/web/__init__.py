"""HTTP servers on uvicorn, for the admin address and other addresses of features.

Needs the extra `web`. Features import `server`; only `protocol` uses uvicorn's internals.
"""
