"""Import path of ``torchx_apps.process_monitor`` in older releases, also for ``python -m``."""

from torchx._forward import forward_program

forward_program(__name__, "torchx_apps.process_monitor")
