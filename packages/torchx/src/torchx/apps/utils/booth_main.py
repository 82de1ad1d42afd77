"""Import path of ``torchx_apps.booth`` in older releases, also for ``python -m``."""

from torchx._forward import forward_program

forward_program(__name__, "torchx_apps.booth", names={"FsspecResultTracker": "torchx_apps.results"})
