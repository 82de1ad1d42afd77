"""Training that survives: attempts, checkpoints that count, and a stop that all ranks agree on.

A training script calls :func:`attempt` once in each rank. The package needs only the standard
library. It uses PyTorch if the script has initialised ``torch.distributed``, and never imports it.
"""

from torchx_resilience.contract import EXIT_REQUEUE
from torchx_resilience.errors import (
    AgreementError,
    CheckpointError,
    ResilienceError,
    ResumeDirError,
    SupersededError,
)
from torchx_resilience.run import Attempt, attempt

__all__ = [
    "EXIT_REQUEUE",
    "AgreementError",
    "Attempt",
    "CheckpointError",
    "ResilienceError",
    "ResumeDirError",
    "SupersededError",
    "attempt",
]
