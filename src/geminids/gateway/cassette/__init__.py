"""Record requests and replay them."""
