"""What a slot does with a slice: calling handlers, and the layers around them."""
