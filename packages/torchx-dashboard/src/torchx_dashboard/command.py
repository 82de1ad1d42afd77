"""The command ``torchx dashboard``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from torchx_cli.arguments.options import Command
from torchx_cli.output.printing import write


@click.command("dashboard", cls=Command)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Listen on this address.  [default: 127.0.0.1, which only this machine reaches]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen on this port.  [default: a free port]",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser, only print the address.")
@click.option("--allow-actions", is_flag=True, help="Let the page cancel, delete and rerun jobs.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Also accept requests to this host name, such as that of JupyterHub; may be repeated.",
)
@click.option(
    "--prefix",
    default="",
    metavar="PATH",
    help="Serve the page below this path, for a proxy that does not remove it.",
)
@click.option(
    "--export",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a page with the apps HANDLE to DIR instead of serving.",
)
@click.option(
    "--runs", is_flag=True, help="With --export: add all runs of the configured trackers."
)
@click.argument("handles", metavar="[HANDLE]...", nargs=-1)
def command(
    host: str,
    port: int,
    no_browser: bool,
    allow_actions: bool,
    hosts: tuple[str, ...],
    prefix: str,
    folder: Path | None,
    runs: bool,
    handles: tuple[str, ...],
) -> None:
    """Show jobs, logs, runs and sweeps in the browser, until the command is interrupted.

    The printed address contains a token, which is the only protection from other users of this
    machine: do not publish it. With an ssh tunnel to the port, the address works on another
    machine.

    \b
    torchx dashboard --allow-actions
    torchx dashboard --export report @1 @2
    """  # noqa: D301
    if folder is None and (handles or runs):
        raise click.UsageError("HANDLEs and --runs belong to --export")
    if folder is not None:
        from torchx_cli.arguments.handles import resolve_handle
        from torchx_dashboard.export import export

        write(export(folder, [resolve_handle(text) for text in handles], with_runs=runs))
        return
    _serve(host, port, hosts, prefix, allow_actions=allow_actions, open_browser=not no_browser)


def _serve(
    host: str,
    port: int,
    hosts: tuple[str, ...],
    prefix: str,
    *,
    allow_actions: bool,
    open_browser: bool,
) -> None:
    import secrets

    from torchx_dashboard.runners import Runners
    from torchx_dashboard.server import Dashboard, make_app
    from torchx_dashboard.serving import address_of, listening_socket, serve, write_redirect

    server = listening_socket(host, port)
    token = secrets.token_urlsafe(32)
    address = f"{address_of(server, prefix)}#token={token}"
    redirect = write_redirect(address) if open_browser else ""
    dashboard = Dashboard(Runners(), allow_actions=allow_actions)
    # The address to which the server was bound is a host name that browsers may use.
    app = make_app(dashboard, token, hosts=(host, *hosts), prefix=prefix)

    def stopping() -> None:
        dashboard.end_streams()
        if redirect:
            os.unlink(redirect)

    write(address)  # the socket accepts connections already
    sys.stdout.flush()
    try:
        if redirect:
            import webbrowser

            webbrowser.open(Path(redirect).as_uri())
        serve(app, server, stopping)
    except KeyboardInterrupt:  # this is how users end the command
        pass
