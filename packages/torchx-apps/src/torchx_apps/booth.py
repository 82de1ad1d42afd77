"""Evaluates the Booth function, a common test of optimizers; the function's minimum is 0 at (1, 3).

    python -m torchx_apps.booth --x1 1 --x2 3 --tracker_base /tmp/results --trial_idx 0

The program prints the value and stores it as ``{"booth_eval": value}`` under the trial's index.
:class:`torchx_apps.results.FsspecResultTracker` can read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .program import ArgumentParser, run

if TYPE_CHECKING:
    from argparse import Namespace

PROG = "torchx_apps.booth"


def booth(x1: float, x2: float) -> float:
    """Return the value of the Booth function at ``(x1, x2)``.

    >>> booth(1, 3)
    0
    """
    return (x1 + 2 * x2 - 7) ** 2 + (2 * x1 + x2 - 5) ** 2


def parse_args(argv: list[str]) -> Namespace:
    """Parse the arguments; print one line and exit with code 2 if they are invalid."""
    parser = ArgumentParser(prog=PROG, description="Evaluate the Booth function at (x1, x2).")
    parser.add_argument("--x1", type=float, required=True, help="first coordinate")
    parser.add_argument("--x2", type=float, required=True, help="second coordinate")
    parser.add_argument(
        "--tracker_base",
        default="/tmp/torchx-utils-booth",  # noqa: S108 - user scripts rely on this default
        help="fsspec URL of the directory for results (default: %(default)s)",
    )
    parser.add_argument(
        "--trial_idx", type=int, default=0, help="key of the result (default: %(default)s)"
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Evaluate the function, store the value and print it."""
    args = parse_args(argv)
    value = booth(args.x1, args.x2)

    from .results import FsspecResultTracker

    FsspecResultTracker(args.tracker_base)[args.trial_idx] = {"booth_eval": value}
    print(f"booth({args.x1}, {args.x2}) = {value}")


if __name__ == "__main__":
    run(main, PROG)
