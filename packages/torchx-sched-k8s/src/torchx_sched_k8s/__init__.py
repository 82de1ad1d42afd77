"""TorchX schedulers for Kubernetes (``kubernetes``, ``kubernetes_mcad``).

Everything public is in :mod:`torchx_sched_k8s.scheduler` and
:mod:`torchx_sched_k8s.mcad.scheduler`.
"""
