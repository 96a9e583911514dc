"""What a handler takes: the parameters of its signature, and how a record becomes them."""
