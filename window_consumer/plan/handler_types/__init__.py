"""The parameters of a handler's signature, and how a record becomes its arguments."""
