"""Names of files and folders; scripts of users rely on them."""

from __future__ import annotations

from torchx_kit.home import home_path
from torchx_kit.names.limits import FILE, fit_name

STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"
COMBINED_LOG = "combined.log"
ERROR_FILE = "error.json"

#: The file with the outcome of an app that has ended, whether or not it succeeded.
SUCCESS = "SUCCESS"

#: The folder within an app's folder whose files only this scheduler reads.
PRIVATE = ".torchx"

#: The error output of a supervisor process.
SUPERVISOR_LOG = f"{PRIVATE}/supervisor.log"

#: Replaces a missing value in the file ``SUCCESS``.
NA = "<N/A>"


def base_folder() -> str:
    """Return the folder of apps for which ``log_dir`` is not set; do not create the folder."""
    return home_path("local")


def session_folder(session: str) -> str:
    """Return the name of the folder with the apps of a session; empty for an empty session."""
    return fit_name(session, FILE) if session else ""


def index_folder() -> str:
    """Return the folder with a link to each app; do not create the folder."""
    return home_path("local", ".apps")
