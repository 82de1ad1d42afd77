"""Wait for the engine's events of an app."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from torchx_sched_docker.client import NoEngineError, engine_errors
from torchx_sched_docker.labels import LABEL_APP_ID

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_specs.schedulers.closing import Closing

_CHANGES = ["start", "die", "oom", "pause", "unpause", "rename", "destroy"]
_PAUSE = 0.5


def wait_for_event(
    client: DockerClient, app_id: str, since: float, timeout: float | None, closing: Closing
) -> None:
    """Block until a container of an app changes, until the timeout, or until the closing.

    If a container has changed between ``since`` and the call, return at once. If the engine does
    not answer, return after a short pause, so that the caller polls again.

    Args:
        client: The client of the engine.
        app_id: The app's id.
        since: The earliest time of a change that ends the wait, in seconds since 1970.
        timeout: How long to block at most, in seconds; None means no limit.
        closing: Ends the wait when the scheduler is closed.

    Raises:
        BackendError: The engine refuses the request.
    """
    until = None if timeout is None else f"{time.time() + timeout:.3f}"
    filters = {"type": "container", "label": f"{LABEL_APP_ID}={app_id}", "event": _CHANGES}
    try:
        with engine_errors(f"wait for {app_id}"):
            events = client.api.events(since=f"{since:.3f}", until=until, filters=filters)

            def close() -> None:
                with suppress(Exception):  # closed by both threads, or a connection by SSH
                    events.close()

            with ExitStack() as stack:
                stack.callback(close)
                stack.enter_context(closing.calling(close))
                next(events, None)
    except NoEngineError:
        if not closing.is_set():
            time.sleep(_PAUSE if timeout is None else min(timeout, _PAUSE))
