"""The TorchX scheduler for Grid Engine."""
