"""Parts of scripts for bash that run an app's roles: words, variables and functions.

Words arrive byte for byte; what only the job knows is a placeholder in them, which becomes code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torchx_kit.scripts.shell import is_variable_name, quote_around, quote_ascii
from torchx_specs.errors import RequestError
from torchx_specs.model.templates import macros, substitute
from torchx_specs.redaction import MASK, is_secret

# Variables that bash keeps for itself or acts upon; env(1) sets them without asking bash.
_BASH_OWN = re.compile(
    r"BASH.*|LC_.*|LANG|_|UID|EUID|PPID|SHELLOPTS|SHLVL|PWD|OLDPWD|POSIXLY_CORRECT|RANDOM|SRANDOM"
    r"|SECONDS|EPOCHSECONDS|EPOCHREALTIME|LINENO|GROUPS|FUNCNAME|FUNCNEST|DIRSTACK|HISTCMD|COMP_.*"
    r"|PIPESTATUS|TIMEFORMAT|COPROC|MAPFILE|REPLY|IFS|OPTIND|OPTERR|OPTARG|HOSTNAME|HOSTTYPE"
    r"|MACHTYPE|OSTYPE|IGNOREEOF|TMOUT|HISTSIZE|HISTFILESIZE|HISTFILE|GLOBIGNORE|COLUMNS|LINES"
)


class RoleWords:
    r"""How a role's words are written into a script.

    >>> words = RoleWords(macros.Values("", "app", "\0k\0"), {"\0k\0": '"$1"'})
    >>> print(words.word("it's ${app_id}/${replica_id}"))
    'it'\''s app/'"$1"

    Args:
        values: what the macros stand for; what only the job knows is a placeholder with a NUL in
            it, as no word can hold one
        shell: placeholder to shell code; the code quotes itself
    """

    def __init__(self, values: macros.Values, shell: Mapping[str, str]) -> None:
        self._values = values.to_dict()
        self._shell = shell

    def word(self, text: str, where: str = "a word") -> str:
        """Returns one word, quoted, macros filled in.

        Args:
            text: the word
            where: it stands, for the error

        Raises:
            RequestError: it cannot be passed to a process
        """
        if "\0" in text:
            raise RequestError(f"{where} holds a NUL character, which no process can be given")
        try:
            return quote_around(substitute(text, self._values), self._shell, quote_ascii) or "''"
        except RequestError as e:
            raise RequestError(f"{where}: {e}") from None

    def command(self, entrypoint: str, args: Iterable[str]) -> list[str]:
        """Returns the words of a command.

        Raises:
            RequestError: one cannot be passed to a process
        """
        words = [self.word(entrypoint, "entrypoint")]
        return words + [self.word(arg, f"args[{i}]") for i, arg in enumerate(args)]

    def exports(self, env: Mapping[str, str], *, mask: bool = False) -> tuple[list[str], list[str]]:
        """Returns lines that export variables, and words for env(1) with those that bash can't.

        Args:
            env: the variables, with macros
            mask: hides the values of what is named like a secret

        Raises:
            RequestError: one cannot be passed to a process
        """
        lines, by_env = [], []
        for name, value in env.items():
            if not name or "=" in name or "\0" in name:
                raise RequestError(f"env has {name!r}, which is no variable's name")
            if mask and value and is_secret(name):
                value = MASK
            quoted = self.word(value, f"env['{name}']")
            if is_variable_name(name) and not _BASH_OWN.fullmatch(name):
                lines.append(f"export {name}={quoted}")
            else:
                by_env.append(f"{quote_ascii(name)}={quoted}")
        return lines, by_env


def env_words(by_env: list[str], entrypoint: str) -> list[str]:
    """Returns the beginning of a command that sets variables by env(1), nothing for none.

    Args:
        by_env: what :meth:`RoleWords.exports` returned for it
        entrypoint: the program that follows

    Raises:
        RequestError: env(1) would take the program for a variable
    """
    if not by_env:
        return []
    if "=" in entrypoint:
        raise RequestError(
            f"entrypoint {entrypoint!r} holds a =, which env(1) takes for a variable"
        )
    return ["/usr/bin/env", "--", *by_env]


def comments(lines: Iterable[str]) -> str:
    """Returns lines of a script that say something to its reader."""
    return "\n".join("# " + re.sub(r"[^ -~]+", "?", line) for line in lines)


def role_table(roles: Iterable[tuple[int, int, str]]) -> str:
    """Returns the elements of an array of bash: a role's replicas, restarts and name in each."""
    return "\n".join(f'    "{count} {tries} {name}"' for count, tries, name in roles)


def role_functions(roles: Iterable[tuple[int, int, str]], commands: Iterable[Iterable[str]]) -> str:
    """Returns the functions ``role_0``, ``role_1`` ...

    Args:
        roles: as for :func:`role_table`
        commands: the lines of each role's command
    """
    functions = []
    for number, ((_, _, name), lines) in enumerate(zip(roles, commands, strict=True)):
        body = "\n".join(f"    {line}" for line in lines)
        functions.append(f"role_{number}() {{ # {name}\n{body}\n}}")
    return "\n".join(functions)


#: Shell function that runs one replica, restarts it in place, and reports to the job's record
#: (:mod:`torchx_kit.jobs.records`). It calls the functions of :func:`role_functions`, and needs
#: traps that set ``tx_ending`` when the job is told to end.
RUN_REPLICA = """\
# Runs a replica. Arguments: record, log without its suffix, node, role, replica, restarts in place,
# then the arguments of the role's function. Sets tx_first if no other replica has failed before.
tx_run() {
    tx_record=$1 tx_log=$2 tx_node=$3 tx_role=$4 tx_replica=$5 tx_tries=$6 tx_try=0 tx_first=
    shift 6
    while :; do
        printf -v tx_now '%(%s)T' -1
        tx_report "$tx_try $tx_node $tx_now"
        ("role_$tx_role" "$@") >> "$tx_log.out" 2>> "$tx_log.err" < /dev/null
        tx_code=$?
        [ "$tx_code" -eq 0 ] || [ "$tx_ending" ] || [ "$tx_try" -ge "$tx_tries" ] && break
        tx_try=$((tx_try + 1))
    done
    printf -v tx_end '%(%s)T' -1
    tx_report "$tx_try $tx_node $tx_now $tx_end $tx_code"
    if [ "$tx_code" -ne 0 ] && [ -z "$tx_ending" ]; then
        (set -C && echo "$tx_role $tx_replica $tx_node $tx_code" > "$tx_record/failed") \\
            2> /dev/null && tx_first=1
    fi
    return "$tx_code"
}
# Replaces a file as a whole, so that readers see no part of it; in place if mv is killed.
tx_report() {
    tx_file=$tx_record/replica-$tx_role-$tx_replica
    { echo "$1" > "$tx_file.new" && mv -f "$tx_file.new" "$tx_file"; } || echo "$1" > "$tx_file"
}"""
