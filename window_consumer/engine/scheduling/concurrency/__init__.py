"""The limit on busy slots, from the configuration, from trials, or from a user."""
