"""Evaluates the Booth function, a usual test of optimisers: its minimum is 0 at (1, 3).

    python -m torchx_apps.booth --x1 1 --x2 3 --tracker_base /tmp/results --trial_idx 0

The value is printed, and stored as ``{"booth_eval": value}`` under the trial's index, where
:class:`torchx_apps.results.FsspecResultTracker` reads it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .program import ArgumentParser, run

if TYPE_CHECKING:
    from argparse import Namespace

PROG = "torchx_apps.booth"


def booth(x1: float, x2: float) -> float:
    """The Booth function at ``(x1, x2)``.

    >>> booth(1, 3)
    0
    """
    return (x1 + 2 * x2 - 7) ** 2 + (2 * x1 + x2 - 5) ** 2


def parse_args(argv: list[str]) -> Namespace:
    """Reads the program's arguments; exits with code 2 and one line if they are wrong."""
    parser = ArgumentParser(prog=PROG, description="evaluates the Booth function at (x1, x2)")
    parser.add_argument("--x1", type=float, required=True, help="first coordinate")
    parser.add_argument("--x2", type=float, required=True, help="second coordinate")
    parser.add_argument(
        "--tracker_base",
        default="/tmp/torchx-utils-booth",  # noqa: S108 - the default that users' scripts read
        help="fsspec location to store the result under (default: %(default)s)",
    )
    parser.add_argument(
        "--trial_idx", type=int, default=0, help="key of the result (default: %(default)s)"
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Evaluates the function, stores the value and prints it."""
    args = parse_args(argv)
    value = booth(args.x1, args.x2)

    from .results import FsspecResultTracker

    FsspecResultTracker(args.tracker_base)[args.trial_idx] = {"booth_eval": value}
    print(f"booth({args.x1}, {args.x2}) = {value}")


if __name__ == "__main__":
    run(main, PROG)
