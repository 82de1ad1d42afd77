"""Where things are: the names of files and folders, which users' scripts read."""

from __future__ import annotations

from torchx_specs.home import home_path

STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"
COMBINED_LOG = "combined.log"
ERROR_FILE = "error.json"

#: The file that says how an app has ended.
SUCCESS = "SUCCESS"

#: The folder, in that of an app, with what only this scheduler reads.
PRIVATE = ".torchx"

#: Stands for a value that is not there.
NA = "<N/A>"


def base_folder() -> str:
    """Returns the folder of the apps that were given no ``log_dir``; does not make it."""
    return home_path("local")


def index_folder() -> str:
    """Returns the folder with a link to every app; does not make it."""
    return home_path("local", ".apps")
