"""What the scripts about trackers use of either project, under one name."""

from __future__ import annotations

import os

ROOT = os.path.join(os.environ["HOME"], "tracked")
CONFIG = os.path.join(os.environ["HOME"], "tracker.conf")


def configure() -> None:
    """Makes an empty root, and a configuration that names it."""
    os.mkdir(ROOT)
    with open(CONFIG, "w", encoding="utf-8") as file:
        file.write(f"protocol=file\nroot_path={ROOT}\n")
