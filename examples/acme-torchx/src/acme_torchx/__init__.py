"""TorchX at Acme."""
