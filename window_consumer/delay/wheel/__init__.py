"""The wheel (``store: wheel``): records wait in files of a second each."""
