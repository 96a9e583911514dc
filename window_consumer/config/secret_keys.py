"""Which Kafka properties are secret, by their names."""

from __future__ import annotations

import re

_SECRET_KEY = re.compile(
    r"password|passphrase|secret|token(?!\.endpoint)|private\.key"
    r"|ssl\.key\.pem|sasl\.oauthbearer\.config|sasl\.jaas\.config",
    re.IGNORECASE,
)


def is_secret_key(key: str) -> bool:
    """Tell whether the value of a Kafka property, named by its dotted key, is a secret."""
    return _SECRET_KEY.search(key) is not None
