"""Names of ``torchx.specs`` and ``torchx.schedulers`` that only clients of older releases use."""

from __future__ import annotations

from torchx_specs.model.resources import NULL_RESOURCE, Resource

YELLOW_BOLD = "\033[1;33m"
RESET = "\033[0m"

EFA_DEVICE = "vpc.amazonaws.com/efa"
NEURON_DEVICE = "aws.amazon.com/neurondevice"


def _null_resource() -> Resource:
    return NULL_RESOURCE
