"""Being told by the engine that an app has changed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from torchx_sched_docker.client import NoEngineError, engine_errors
from torchx_sched_docker.labels import LABEL_APP_ID

if TYPE_CHECKING:
    from docker.client import DockerClient

_CHANGES = ["start", "die", "oom", "pause", "unpause", "rename", "destroy"]
_PAUSE = 0.5


def wait_for_event(
    client: DockerClient, app_id: str, since: float, timeout: float | None = None
) -> None:
    """Returns when a container of an app changes, or has done so since that time.

    An engine that goes away counts as a change: its caller looks again.

    Args:
        client: of the engine
        app_id: the app
        since: in seconds since 1970
        timeout: returns after that many seconds, never if None
    """
    until = None if timeout is None else f"{time.time() + timeout:.3f}"
    filters = {"type": "container", "label": f"{LABEL_APP_ID}={app_id}", "event": _CHANGES}
    try:
        with engine_errors(f"wait for {app_id}"):
            events = client.api.events(since=f"{since:.3f}", until=until, filters=filters)
            try:
                for _ in events:
                    return
            finally:
                events.close()
    except NoEngineError:
        time.sleep(_PAUSE if timeout is None else min(timeout, _PAUSE))
