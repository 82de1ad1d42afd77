"""The scripts that connect bash, zsh and fish with :mod:`torchx_cli.completion.answer`.

A script runs ``torchx`` with ``_TORCHX_COMPLETE=SHELL``, and reads the output. Each line has a
kind, TEXT and a help text, separated by tabs. The kinds are:

=====  ==================================================================
word   TEXT is a complete word
part   TEXT is the beginning of a word, after which the shell adds no space
files  the shell completes names of files, with TEXT as the prefix
open   like files, but the shell adds no space after the name of a file
dirs   the shell completes names of directories
=====  ==================================================================
"""

from __future__ import annotations

# bash splits words at ':' and '='. So torchx receives the whole line, and removes the part of each
# completion that bash does not replace. -o filenames is set only for names of files: bash then adds
# '/' to directories and quotes special characters.
_BASH = r"""
_torchx_completion() {
    local kind text help files=0 open=0 words=0 parts=0 cur=${COMP_WORDS[COMP_CWORD]}
    COMPREPLY=()
    while IFS=$'\t' read -r kind text help; do
        case $kind in
            word) COMPREPLY+=("$text"); words=1 ;;
            part) COMPREPLY+=("$text"); parts=1 ;;
            files) files=1; cur=$text ;;
            open) files=1; open=1; cur=$text ;;
            dirs) compopt -o dirnames; return ;;
        esac
    done < <(COMP_LINE=$COMP_LINE COMP_POINT=$COMP_POINT _TORCHX_WORDBREAKS=$COMP_WORDBREAKS \
        _TORCHX_COMPLETE=bash "$1" 2>/dev/null)
    if ((files)); then
        if ((open)); then compopt -o nospace; fi
        if ((words + parts == 0)); then
            compopt -o bashdefault -o default
            return
        fi
        compopt -o filenames
        while IFS= read -r text; do COMPREPLY+=("$text"); done < <(compgen -f -- "$cur")
    fi
    if ((words && ${#COMPREPLY[@]} == 1)); then compopt +o nospace; fi
    if ((parts && !words && !files)); then compopt -o nospace; fi
}
complete -o nosort -F _torchx_completion torchx
"""

_ZSH = r"""#compdef torchx
_torchx_completion() {
    local kind text help
    local -a words_found words_shown parts parts_shown
    local -i files=0 open=0 dirs=0
    while IFS=$'\t' read -r kind text help; do
        case $kind in
            word) words_found+=("$text"); words_shown+=("${text}${help:+  -- $help}") ;;
            part) parts+=("$text"); parts_shown+=("${text}${help:+  -- $help}") ;;
            files) files=1 ;;
            open) files=1; open=1 ;;
            dirs) dirs=1 ;;
        esac
    done < <(_TORCHX_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT-1]}" \
        "${(Q)PREFIX}" 2>/dev/null)
    (($#words_found)) && compadd -l -d words_shown -- "${words_found[@]}"
    (($#parts)) && compadd -l -S '' -d parts_shown -- "${parts[@]}"
    if ((files)); then
        if ((open)); then _path_files -S ''; else _path_files; fi
    fi
    if ((dirs)); then _path_files -/; fi
    return 0
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _torchx_completion "$@"
else
    compdef _torchx_completion torchx
fi
"""

# fish adds no space after a completion that ends with '=', ':', ',', '/' or '.'.
_FISH = r"""
function _torchx_completion
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l answers (env _TORCHX_COMPLETE=fish $words[1] $words[2..-1] $current 2>/dev/null)
    for answer in $answers
        set -l fields (string split \t -- $answer)
        switch $fields[1]
            case word part
                if test -n "$fields[3]"
                    printf '%s\t%s\n' $fields[2] $fields[3]
                else
                    printf '%s\n' $fields[2]
                end
            case files open
                __fish_complete_path $current
            case dirs
                __fish_complete_directories $current
        end
    end
end
complete --no-files --command torchx --arguments '(_torchx_completion)'
"""

#: The script of each shell.
SCRIPTS = {"bash": _BASH.lstrip(), "zsh": _ZSH, "fish": _FISH.lstrip()}
