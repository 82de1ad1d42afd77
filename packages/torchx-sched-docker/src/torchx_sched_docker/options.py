"""The scheduler's options."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_specs.options.structured import StructuredOpts

#: What ``pull`` may be.
PULL_POLICIES = ("always", "missing", "never")
#: What ``publish`` may be.
PUBLISH_POLICIES = ("free", "same", "none")


@dataclass
class DockerOpts(StructuredOpts):
    """Options of ``local_docker``."""

    copy_env: list[str] | None = None
    """patterns (as the shell's) for names of variables of this process that the job gets, too"""

    env: dict[str, str] | None = None
    """variables for the job: they replace those of copy_env; the role's own replace these"""

    privileged: bool = False
    """runs the containers with all rights on this machine, as docker run --privileged does"""

    pull: str = "always"
    """when to fetch images: always (one that cannot be fetched but is here is used as it is),
    missing, never"""

    publish: str = "free"
    """how a role's port_map is reached from this machine: at free ports of 127.0.0.1, which
    describe tells (free), at the same ports (same), or not at all (none)"""
