"""TorchX schedulers for Kubernetes (``kubernetes``, ``kubernetes_mcad``).

The public names are in :mod:`torchx_sched_k8s.scheduler` and
:mod:`torchx_sched_k8s.mcad.scheduler`.
"""
