"""TorchX scheduler for Kubernetes (``kubernetes``).

The public names are in :mod:`torchx_sched_k8s.scheduler`.
"""
