"""``window-consumer dev``: an application that reloads, with a broker and a page to try it out."""
