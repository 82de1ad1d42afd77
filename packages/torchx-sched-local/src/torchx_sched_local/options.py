"""The options of ``local_cwd``."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_kit.jobs.attempts import AttemptOpts


@dataclass
class LocalOpts(AttemptOpts):
    """Options of ``local_cwd``."""

    log_dir: str | None = None
    """Write logs to this folder, in SESSION/APP_ID (default: $TORCHX_HOME/local)"""

    prepend_cwd: bool = False
    """Put the working directory at the beginning of the app's PATH instead of at its end"""

    auto_set_cuda_visible_devices: bool = False
    """Divide this machine's GPUs among the replicas of roles that request GPUs"""

    detach: bool = False
    """Run the app in the background, so that it continues when the submitting program ends"""

    setup: list[str] | None = None
    """Run these lines of bash before the program of each replica. If a line fails, the replica
    fails. Example: setup=module load cuda/12.4;conda activate train"""

    time: str | None = None
    """End each replica, as a failure, after this time with a unit: 90s, 30m, 2h or 1-12:00 (days,
    hours and minutes); a retry has the same time again (default: no limit)"""

    follow_links: bool = False
    """In the copy of a workspace, replace links to files outside of the workspace by these files;
    otherwise such links are refused"""

    gitignore: bool = False
    """Copy no files of a workspace that Git ignores (.gitignore)"""

    fail_together: bool = False
    """End all replicas as soon as one has failed and has no retries left"""
