"""Parts of bash scripts that run the roles of an app.

Programs receive arguments and variables byte for byte. A placeholder stands for a value that only
the running job knows, such as the job's id. In the script, shell code replaces the placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torchx_kit.scripts.secret_script import READ_FUNCTION, is_secret_statement, secret_statement
from torchx_kit.scripts.shell import is_variable_name, quote_around, quote_ascii
from torchx_specs.errors import RequestError
from torchx_specs.model.secrets import parse_secret
from torchx_specs.model.templates import macros, substitute
from torchx_specs.redaction import masked, masked_value

# Variables that bash sets itself or that change its behavior. The script sets them with env(1).
_BASH_OWN = re.compile(
    r"BASH.*|LC_.*|LANG|_|UID|EUID|PPID|SHELLOPTS|SHLVL|PWD|OLDPWD|POSIXLY_CORRECT|RANDOM|SRANDOM"
    r"|SECONDS|EPOCHSECONDS|EPOCHREALTIME|LINENO|GROUPS|FUNCNAME|FUNCNEST|DIRSTACK|HISTCMD|COMP_.*"
    r"|PIPESTATUS|TIMEFORMAT|COPROC|MAPFILE|REPLY|IFS|OPTIND|OPTERR|OPTARG|HOSTNAME|HOSTTYPE"
    r"|MACHTYPE|OSTYPE|IGNOREEOF|TMOUT|HISTSIZE|HISTFILESIZE|HISTFILE|GLOBIGNORE|COLUMNS|LINES"
)
# Many machines have Python only as python3.
_PYTHON = '"$(command -v python || echo python3)"'


class RoleQuoting:
    r"""Quotes a role's arguments and variables for a script, with macros substituted.

    >>> quoting = RoleQuoting(macros.Values("", "app", "\0k\0"), {"\0k\0": '"$1"'})
    >>> print(quoting.quote("it's ${app_id}/${replica_id}", "args[0]"))
    'it'\''s app/'"$1"

    Args:
        values: Values of the macros. A value that only the job knows is a placeholder with a NUL
            character, which no argument can contain.
        shell: Shell code for each placeholder; the code includes its own quotes.
    """

    def __init__(self, values: macros.Values, shell: Mapping[str, str]) -> None:
        self._values = values.to_dict()
        self._shell = shell

    def quote(self, text: str, where: str) -> str:
        """Return a text quoted for bash, with macros substituted.

        Args:
            text: The text.
            where: Place of the text, for error messages, such as ``args[1]``.

        Raises:
            RequestError: The text cannot be passed to a process.
        """
        if "\0" in text:
            raise RequestError(f"{where} contains a NUL character, which no process can be given")
        try:
            return quote_around(substitute(text, self._values), self._shell, quote_ascii) or "''"
        except RequestError as e:
            raise RequestError(f"{where}: {e}") from None

    def command(
        self, entrypoint: str, args: Iterable[str], *, mask: bool = False, in_container: bool = True
    ) -> list[str]:
        """Return a program and its arguments, each quoted.

        Args:
            entrypoint: The program. Without a container, ``python`` may be ``python3``.
            args: The arguments.
            mask: Whether to mask secrets (:mod:`torchx_specs.redaction`).
            in_container: Whether the script passes the program to a container.

        Raises:
            RequestError: The program or an argument cannot be passed to a process.
        """
        is_python = entrypoint == "python" and not in_container
        argv = [_PYTHON if is_python else self.quote(entrypoint, "entrypoint")]
        if mask:
            args = masked(list(args))
        return argv + [self.quote(arg, f"args[{i}]") for i, arg in enumerate(args)]

    def exports(self, env: Mapping[str, str], *, mask: bool = False) -> tuple[list[str], list[str]]:
        """Return the statements that set variables.

        Args:
            env: The variables.
            mask: Whether to mask secrets (:mod:`torchx_specs.redaction`).

        Returns:
            Statements, and arguments of env(1) for the variables that bash cannot set. Statements
            that read secrets come first, because other statements may set ``HOME``.

        Raises:
            RequestError: A variable has an invalid name, or cannot be passed to a process; or it
                refers to a secret, and bash cannot set it.
        """
        secrets: list[str] = []
        exports, env_args = [], []
        for name, value in env.items():
            if not name or "=" in name or "\0" in name:
                raise RequestError(f"env has {name!r}, which is not a valid variable name")
            has_export = is_variable_name(name) and not _BASH_OWN.fullmatch(name)
            reference = parse_secret(value)
            if reference is not None:
                if not has_export:
                    raise RequestError(
                        f"env['{name}'] refers to the secret '{reference.name}', and bash cannot"
                        " set this variable; choose another name, of letters, digits and '_'"
                    )
                secrets.append(secret_statement(name, reference))
                continue
            if mask:
                value = masked_value(name, value)
            quoted = self.quote(value, f"env['{name}']")
            if has_export:
                exports.append(f"export {name}={quoted}")
            else:
                env_args.append(f"{quote_ascii(name)}={quoted}")
        return secrets + exports, env_args


def env_command(env_args: list[str], entrypoint: str) -> list[str]:
    """Return the call of env(1) to put before a program; empty if there are no variables.

    Args:
        env_args: The arguments of env(1) that :meth:`RoleQuoting.exports` returned.
        entrypoint: The program.

    Raises:
        RequestError: The name of the program has an ``=``, so env(1) would read it as a variable.
    """
    if not env_args:
        return []
    if "=" in entrypoint:
        raise RequestError(
            f"entrypoint {entrypoint!r} contains '=', so env(1) would take it for a variable;"
            " rename the program"
        )
    return ["/usr/bin/env", "--", *env_args]


def comment_lines(lines: Iterable[str]) -> str:
    """Return lines of text as comments of a script, in printable ASCII."""
    return "\n".join("# " + re.sub(r"[^ -~]+", "?", line) for line in lines)


def role_table(roles: Iterable[tuple[int, int, str]]) -> str:
    """Return the elements of a bash array, one for each role: replicas, restarts and name.

    Args:
        roles: Number of replicas, number of restarts in place, and name of each role.
    """
    return "\n".join(f'    "{count} {restarts} {name}"' for count, restarts, name in roles)


def role_functions(roles: Iterable[tuple[int, int, str]], commands: Iterable[Iterable[str]]) -> str:
    """Return the shell functions ``role_0``, ``role_1`` and so on, which run the roles.

    If a role refers to a secret, the text begins with the shell function that reads secrets.

    Args:
        roles: The roles, as for :func:`role_table`.
        commands: The lines of each role's function.
    """
    bodies = [list(lines) for lines in commands]
    has_secrets = any(is_secret_statement(line) for lines in bodies for line in lines)
    functions = [READ_FUNCTION] if has_secrets else []
    for number, ((_, _, name), lines) in enumerate(zip(roles, bodies, strict=True)):
        body = "\n".join(f"    {line}" for line in lines)
        functions.append(f"role_{number}() {{ # {name}\n{body}\n}}")
    return "\n".join(functions)


#: Shell function that runs one replica, restarts it in place, and reports to the job's record
#: (:mod:`torchx_kit.jobs.records`). It calls the functions of :func:`role_functions`. The script
#: must have traps that set ``tx_ending`` when a signal requests the end of the job. If it sets
#: ``tx_attempt``, the script itself decides whether an end is the app's failure. After this code,
#: the script may define ``tx_is_over`` again, and may have the code of
#: :func:`~torchx_kit.scripts.setup_script.render_setup`.
RUN_REPLICA = """\
tx_setup=
# Runs a replica. Arguments: record, log without its suffix, node, role, replica, restarts in place,
# then the arguments of the role's function. Sets tx_first if no other replica has failed before.
tx_run() {
    tx_record=$1 tx_log=$2 tx_node=$3 tx_role=$4 tx_replica=$5 tx_tries=$6 tx_try=0 tx_first=
    shift 6
    while :; do
        printf -v tx_now '%(%s)T' -1
        tx_report "$tx_try $tx_node $tx_now"
        # Traps run while the program runs. wait would not do: if the program ends at the moment of
        # a signal, bash 5.2 may lose its exit code, or wait for other processes.
        exec {tx_fd}< <(
            trap : HUP INT QUIT TERM USR1 USR2 ALRM XCPU
            ($tx_setup "role_$tx_role" "$@") >> "$tx_log.out" 2>> "$tx_log.err" < /dev/null
            echo $?
        )
        tx_code=
        while :; do # after a second, read may end with a part of the code
            read -t 1 -r tx_part <&"$tx_fd"
            tx_read=$? tx_code=$tx_code$tx_part
            [ "$tx_read" -gt 128 ] || break
        done
        exec {tx_fd}<&-
        tx_code=${tx_code:-137}
        [ "$tx_code" -eq 0 ] || [ "$tx_ending" ] || [ "$tx_try" -ge "$tx_tries" ] && break
        tx_try=$((tx_try + 1))
    done
    printf -v tx_end '%(%s)T' -1
    tx_report "$tx_try $tx_node $tx_now $tx_end $tx_code"
    if [ "$tx_code" -ne 0 ] && [ -z "$tx_ending" ] && [ -z "${tx_attempt-}" ] && ! tx_is_over; then
        (set -C && echo "$tx_role $tx_replica $tx_node $tx_code" > "$tx_record/failed") \\
            2> /dev/null && tx_first=1
    fi
    return "$tx_code"
}
# Returns 0 if this replica belongs to an earlier attempt, and runs on because its node was lost.
tx_is_over() {
    false
}
# Replaces a file as a whole, so that readers see no part of it; in place if mv is killed.
tx_report() {
    ! tx_is_over || return 0
    tx_file=$tx_record/replica-$tx_role-$tx_replica
    { echo "$1" > "$tx_file.new" && mv -f "$tx_file.new" "$tx_file"; } || echo "$1" > "$tx_file"
}"""
