"""LSF's report of a job whose log is missing."""

from __future__ import annotations

from torchx_kit.hosts.api import Host


def report_hint(host: Host, report: str) -> str:
    """Return where LSF's report of a job is, or an empty string if there is none.

    Args:
        host: The machine with the job's files.
        report: Path of the report.
    """
    return f"see {report}" if host.exists(report) else ""
