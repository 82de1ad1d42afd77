"""TorchX scheduler for AppWrappers of MCAD on Kubernetes (``kubernetes_mcad``).

The public names are in :mod:`torchx_sched_mcad.scheduler`.
"""
