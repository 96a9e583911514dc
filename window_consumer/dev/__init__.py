"""``window-consumer dev``: runs an application that reloads, with a broker and a page."""
