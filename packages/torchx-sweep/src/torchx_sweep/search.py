"""Finds submitted apps by their names, for submissions that were interrupted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal


def find_apps(
    runner: Runner, scheduler: str, cfg: Mapping[str, CfgVal], names: Collection[str]
) -> tuple[dict[str, Any], bool]:
    """Return the listed apps by name, and whether the result is complete.

    The result counts as incomplete if the scheduler lists apps, but gives no name of an app, and no
    app was found by its id.

    Args:
        runner: Lists the apps.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler.
        names: The names, each of which belongs to one app at most.

    Raises:
        TorchXError: The apps cannot be listed.
    """
    apps = runner.list(scheduler, cfg)
    found: dict[str, Any] = {}
    for app in apps:
        name = getattr(app, "name", "")
        if name in names:
            found[name] = app
            continue
        # An id may have a queue or namespace before the name: "queue:name-x7f".
        app_id = parse_app_handle(app.app_handle).app_id.rpartition(":")[2]
        for end in (i for i, character in enumerate(f"{app_id}-") if character == "-"):
            if app_id[:end] in names:
                found[app_id[:end]] = app
    return found, bool(found) or not apps or any(getattr(app, "name", "") for app in apps)
