"""The entry point of the command ``torchx``, and of ``python -m torchx_cli``."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command with the arguments of this process, and exit; see :mod:`torchx_cli.main`."""
    # With Python's default thresholds, a start searches for garbage 40 times. This takes 5 % of the
    # time, and finds 500 objects. So set them before the modules of the command are imported.
    gc.set_threshold(50_000, 10, 10)
    from torchx_cli.main import main

    main()


if __name__ == "__main__":
    main()
