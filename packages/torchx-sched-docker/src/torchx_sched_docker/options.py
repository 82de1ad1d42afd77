"""The options of the scheduler ``local_docker``."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_kit.jobs.attempts import AttemptOpts

#: The valid values of ``pull``.
PULL_POLICIES = ("always", "missing", "never")
#: The valid values of ``publish``.
PUBLISH_POLICIES = ("free", "same", "none")


@dataclass
class DockerOpts(AttemptOpts):
    """The options of ``local_docker``."""

    copy_env: list[str] | None = None
    """copy the environment variables of this process whose names match these shell patterns"""

    env: dict[str, str] | None = None
    """set these environment variables; they replace variables of copy_env, and the role's own
    variables replace them"""

    privileged: bool = False
    """run containers with extended privileges, as docker run --privileged does"""

    pull: str = "always"
    """pull images: always (if that fails, a local image is used), missing or never"""

    publish: str = "free"
    """publish the ports of port_map on 127.0.0.1: at free ports, which describe shows (free), at
    the same ports (same), or not at all (none)"""

    setup: list[str] | None = None
    """run these lines of sh in each container before the program; if a line fails, the replica
    fails. Example: setup=export MODE=fast"""

    time: str | None = None
    """end each container, as a failure, after this time with a unit: 90s, 30m, 2h or 1-12:00 (days,
    hours and minutes); the image must have the command timeout (default: no limit). With requeue,
    the limit is that of one attempt"""

    init: bool = True
    """run an init process in each container, as docker run --init does; without an init process, a
    program that does not handle SIGTERM is killed 10 seconds after torchx cancel"""
