"""TorchX scheduler for this machine: durable local jobs (``local_cwd``).

The public names are in :mod:`torchx_sched_local.scheduler`.
"""
