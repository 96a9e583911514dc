"""The wheel (``store: wheel``): records wait in files, one for each second."""
