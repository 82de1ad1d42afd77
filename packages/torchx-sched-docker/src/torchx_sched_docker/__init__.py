"""TorchX scheduler for Docker Engine (``local_docker``).

Everything public is in :mod:`torchx_sched_docker.scheduler`.
"""
