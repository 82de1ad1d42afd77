"""A page in the browser that shows jobs, their logs, runs and sweeps: ``torchx dashboard``."""
