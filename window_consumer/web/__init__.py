"""HTTP servers on uvicorn: what the admin address and other addresses of features share.

Needs the extra `web`. Features import `server`; only `protocol` rests on uvicorn's internals.
"""
