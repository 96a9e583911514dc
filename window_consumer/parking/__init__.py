"""Parking: a key that fails keeps its order, and does not stop the others of its partition."""
