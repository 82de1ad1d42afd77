"""Hint for a missing replica log: the path of LSF's report of the job."""

from __future__ import annotations

from torchx_kit.hosts.api import Host


def report_hint(host: Host, report: str) -> str:
    """Return a hint with the path of LSF's report, or an empty string if the file is missing.

    Args:
        host: The machine with the job's files.
        report: Path of the report.
    """
    return f"see {report}" if host.exists(report) else ""
