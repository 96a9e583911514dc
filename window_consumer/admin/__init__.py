"""The live window in a browser, its JSON, and pausing by hand: the ``admin`` address.

What belongs here is who may ask, what is told, and the page. It looks at workers through
``runtime`` and changes nothing but what a person pauses. The only package that knows Starlette and
uvicorn, which are optional.
"""
