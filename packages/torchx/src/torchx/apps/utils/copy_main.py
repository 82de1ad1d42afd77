"""Import path of ``torchx_apps.copy`` in older releases, also for ``python -m``."""

from torchx._forward import forward

if __name__ == "__main__":
    from torchx_apps.copy import PROG, main
    from torchx_apps.program import run

    run(main, PROG)
else:
    forward(__name__, "torchx_apps.copy")
