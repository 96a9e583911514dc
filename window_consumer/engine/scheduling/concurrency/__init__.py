"""How many slots may be busy: limits from the configuration, from trials, or from a user."""
