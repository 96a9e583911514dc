"""Parking: a failing key keeps its order without stopping the other keys of its partition."""
