"""TorchX scheduler for this machine: durable local jobs (``local_cwd``).

Everything public is in :mod:`torchx_sched_local.scheduler`.
"""
