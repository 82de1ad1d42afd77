"""The command ``torchx queues``."""

import json
import sqlite3
from collections import Counter

import click
from torchx_specs.errors import BackendError

from acme_torchx.database import acme_home
from acme_torchx.jobs import JobTable


@click.command("queues")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show how many jobs of each queue are pending and running."""
    table = JobTable(acme_home())
    try:
        jobs = table.jobs()
    except sqlite3.Error as e:
        raise BackendError(f"acme: cannot read {table.path}: {e}") from e
    counts = {queue: Counter[str]() for queue in sorted({job.queue for job in jobs})}
    for job in jobs:
        counts[job.queue][job.state] += 1
    if as_json:
        click.echo(json.dumps(counts))
        return
    for queue, states in counts.items():
        click.echo(f"{queue}: {states['PENDING']} pending, {states['RUNNING']} running")
