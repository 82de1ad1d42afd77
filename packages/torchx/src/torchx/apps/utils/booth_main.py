"""Import path of ``torchx_apps.booth`` in older releases, also for ``python -m``."""

from torchx._forward import forward

if __name__ == "__main__":
    from torchx_apps.booth import PROG, main
    from torchx_apps.program import run

    run(main, PROG)
else:
    forward(
        __name__,
        "torchx_apps.booth",
        names={"FsspecResultTracker": "torchx_apps.results"},
    )
