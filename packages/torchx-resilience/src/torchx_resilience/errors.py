"""The errors of the package."""

from __future__ import annotations


class ResilienceError(Exception):
    """Base class: an attempt cannot start, save a checkpoint or agree on a stop."""


class ResumeDirError(ResilienceError):
    """The resume folder is missing, not writable, or belongs to another run or user."""


class CheckpointError(ResilienceError):
    """A checkpoint could not be committed. Earlier committed checkpoints are unchanged."""


class AgreementError(ResilienceError):
    """The ranks could not agree on a step to stop at."""


class SupersededError(SystemExit):
    """A newer attempt has started, so this attempt ends.

    Python prints the message and exits with code 1. ``except Exception`` does not catch this error.
    """
