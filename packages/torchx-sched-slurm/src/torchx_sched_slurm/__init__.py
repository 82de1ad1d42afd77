"""The TorchX scheduler for Slurm."""
