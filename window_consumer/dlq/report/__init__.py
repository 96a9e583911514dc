"""The report on dead letters, as a page and as text."""
