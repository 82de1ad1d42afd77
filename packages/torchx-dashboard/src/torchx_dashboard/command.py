"""The command ``torchx dashboard``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from torchx_cli.arguments.command import Command
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
def command(
    host: str,
    port: int,
    no_browser: bool,
    allow_actions: bool,
    hosts: tuple[str, ...],
    prefix: str,
) -> None:
    """Show jobs, logs, runs and sweeps in the browser, until the command is interrupted.

    The printed address contains a token, which is the only protection from other users of this
    machine: do not publish it. With an ssh tunnel to the port, the address works on another
    machine.
    """
    import secrets

    from torchx_dashboard.runners import Runners
    from torchx_dashboard.server import Dashboard, make_app
    from torchx_dashboard.serving import address_of, listening_socket, serve, write_redirect

    server = listening_socket(host, port)
    token = secrets.token_urlsafe(32)
    address = f"{address_of(server, prefix)}#token={token}"
    redirect = "" if no_browser else write_redirect(address)

    def ready() -> None:
        write(address)
        sys.stdout.flush()
        if redirect:
            import webbrowser

            webbrowser.open(Path(redirect).as_uri())

    dashboard = Dashboard(Runners(), allow_actions=allow_actions)
    # The address to which the server was bound is a host name that browsers may use.
    app = make_app(dashboard, token, hosts=(host, *hosts), prefix=prefix)

    def stopping() -> None:
        dashboard.end_streams()
        if redirect:
            os.unlink(redirect)

    try:
        serve(app, server, ready, stopping)
    except KeyboardInterrupt:  # this is how users end the command
        pass
