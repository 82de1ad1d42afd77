"""The TorchX scheduler for LSF."""
