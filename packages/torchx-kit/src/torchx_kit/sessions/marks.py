"""Send signals to a command in a container, whose process id is unknown on this machine.

The command gets an environment variable with a random value. A second command finds the processes
that have this variable, and sends the signal to them.
"""

from __future__ import annotations

import signal

#: The variable that marks the processes of a session.
MARK = "TORCHX_SESSION"

# $1 is the signal's name, $2 the variable with its value. Child processes of the command inherit
# the variable, so they get the signal, too.
_SIGNAL = """\
for folder in /proc/[0-9]*; do
    if tr '\\000' '\\n' < "$folder/environ" 2> /dev/null | grep -qxF -e "$2"; then
        kill -s "$1" "${folder#/proc/}" 2> /dev/null
    fi
done
exit 0
"""


def signal_command(value: str, number: int) -> list[str]:
    """Return a command that sends a signal to the processes of a session.

    Args:
        value: Value of the variable :data:`MARK` in the processes of the session.
        number: Number of the signal.
    """
    name = signal.Signals(number).name.removeprefix("SIG")
    return ["sh", "-c", _SIGNAL, "sh", name, f"{MARK}={value}"]
