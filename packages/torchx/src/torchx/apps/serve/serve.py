"""Import path of ``torchx_apps.serve`` in older releases, also for ``python -m``."""

from torchx._forward import forward

if __name__ == "__main__":
    from torchx_apps.program import run
    from torchx_apps.serve import PROG, main

    run(main, PROG)
else:
    forward(__name__, "torchx_apps.serve")
