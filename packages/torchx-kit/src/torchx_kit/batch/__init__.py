"""What schedulers for batch systems share: see :class:`torchx_kit.batch.system.BatchSystem`."""
