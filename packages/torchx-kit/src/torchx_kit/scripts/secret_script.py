"""Bash code that reads secrets on the node on which a job runs.

The secrets are files in ``${TORCHX_HOME:-$HOME/.torchx}/secrets``, as for
:mod:`torchx_kit.secrets`. The script contains only references.
"""

from __future__ import annotations

from torchx_specs.model.secrets import SecretRef

_CALL = "tx_secret"


def secret_statement(variable: str, reference: SecretRef) -> str:
    """Return the statement that exports a secret as a variable.

    If the secret cannot be read, the statement ends the shell with exit code 2.

    Args:
        variable: Name of the variable.
        reference: The secret. Its name and key have no characters that a shell interprets.
    """
    return " ".join(filter(None, (_CALL, variable, *reference)))


def is_secret_statement(line: str) -> bool:
    """Return True if a line is a result of :func:`secret_statement`."""
    return line.startswith(f"{_CALL} ")


#: Defines the shell function that the statements of :func:`secret_statement` call. The shell
#: variable ``tx_secrets`` may name another directory of secrets.
READ_FUNCTION = """\
# Exports the variable $1 with the secret in the file $2, or $2/$3, of the directory of secrets.
tx_secret() {
    tx_path=${tx_secrets:-${TORCHX_HOME:-$HOME/.torchx}/secrets} tx_why=
    export -n tx_secrets
    # The record of the job, or of its array, has the secrets that were sent with the job.
    for tx_part in "${tx_record-}" "${tx_record%/*}"; do
        [ ! -e "$tx_part/secrets/$2" ] || tx_path=$tx_part/secrets
    done
    for tx_part in "${@:2}"; do
        if [ -d "$tx_path" ]; then
            [ -O "$tx_path" ] || : "${tx_why:=$tx_path belongs to another user}"
            case $(ls -ldL -- "$tx_path") in
                ?????-??-*) ;;
                *) : "${tx_why:=$tx_path can be written by other users; run: chmod 700 $tx_path}" ;;
            esac
        fi
        tx_path=$tx_path/$tx_part
        [ ! -L "$tx_path" ] || : "${tx_why:=$tx_path is a symbolic link}"
    done
    if [ ! -e "$tx_path" ]; then
        : "${tx_why:=the secret is missing; write it to $tx_path (mode 0600)}"
    elif [ ! -f "$tx_path" ]; then
        : "${tx_why:=$tx_path is not a regular file}"
    elif [ ! -O "$tx_path" ]; then
        : "${tx_why:=$tx_path belongs to another user}"
    elif [[ $(ls -ld -- "$tx_path") != ????------* ]]; then
        : "${tx_why:=$tx_path can be used by other users; run: chmod 600 $tx_path}"
    elif ! tx_value=$(cat -- "$tx_path" && echo x); then # x keeps newlines at the end
        : "${tx_why:=cannot read $tx_path}"
    else
        tx_value=${tx_value%x} tx_value=${tx_value%$'\\n'}
        [ "$tx_value" ] || : "${tx_why:=$tx_path is empty}"
    fi
    if [ "$tx_why" ]; then
        echo "env['$1'], on $(hostname): $tx_why" >&2
        exit 2
    fi
    export "$1=$tx_value"
    unset tx_value
}"""
