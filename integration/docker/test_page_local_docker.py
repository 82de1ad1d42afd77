"""Run the shell session of docs/schedulers/local_docker.md on a Docker Engine."""

from __future__ import annotations

from collections.abc import Callable

from torchx_sched_docker.scheduler import DockerScheduler


def test_the_session_of_the_page(
    scheduler: DockerScheduler,
    page_session: Callable[[str], None],
) -> None:
    page_session("local_docker")
