"""Import path of ``torchx_apps.serve`` in older releases, also for ``python -m``."""

from torchx._forward import forward_program

forward_program(__name__, "torchx_apps.serve")
