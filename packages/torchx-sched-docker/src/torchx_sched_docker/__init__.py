"""TorchX scheduler for Docker Engine (``local_docker``).

The public names are in :mod:`torchx_sched_docker.scheduler`.
"""
