"""The configuration of the tracker that the measured scripts use."""

from __future__ import annotations

import os

ROOT = os.path.join(os.environ["HOME"], "tracked")
CONFIG = os.path.join(os.environ["HOME"], "tracker.conf")


def configure() -> None:
    """Create an empty root folder and the configuration file of the tracker."""
    os.mkdir(ROOT)
    with open(CONFIG, "w", encoding="utf-8") as file:
        file.write(f"protocol=file\nroot_path={ROOT}\n")
