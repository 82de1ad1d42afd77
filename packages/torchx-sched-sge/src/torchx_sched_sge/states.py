"""Map Grid Engine's job states to AppState, and the accounting's failure codes to reasons."""

from __future__ import annotations

from torchx_specs.model.status import AppState

# Messages for the failure codes in the accounting. sge_status(5) lists the codes.
_REASONS = {
    28: "its host cannot change to the working directory (option job_dir)",
    37: "limit of the run time, CPU time or memory reached (options time and memory)",
    100: "killed: by qdel, by a limit of its host, or for lack of memory",
}


def app_state(state: str) -> AppState:
    """Return the AppState for the letters of the column ``state`` of qstat.

    >>> app_state("hqw").name, app_state("Rr").name, app_state("Eqw").name, app_state("S").name
    ('PENDING', 'RUNNING', 'FAILED', 'PENDING')
    """
    if "E" in state:
        return AppState.FAILED
    if any(letter in state for letter in "qw") or any(letter in state for letter in "sSTNP"):
        return AppState.PENDING
    return AppState.RUNNING if any(letter in state for letter in "rtRd") else AppState.UNKNOWN


def failure_reason(code: int, description: str) -> str:
    """Return why Grid Engine ended a task.

    Args:
        code: The failure code in the accounting.
        description: Grid Engine's description of the code.

    Returns:
        The reason; an empty string for code 0, which means that the task ended by itself.
    """
    if code == 0:
        return ""
    return _REASONS.get(code, f"failure code {code} of Grid Engine: {description}")
