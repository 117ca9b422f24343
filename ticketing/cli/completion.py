"""`ticketing completion SHELL`: the script that makes a shell complete our commands, options, places and keys."""

from __future__ import annotations

from typing import Annotated

import typer

from ticketing.cli.errors import ExitCode, usage_error
from ticketing.cli.options import new_app
from ticketing.cli.output import write_line

SCRIPTS = {
    "bash": """\
# ticketing: completion for bash. In ~/.bashrc: source <(ticketing completion bash)
# Keys may have colons in them: these must not end a word.
COMP_WORDBREAKS=${COMP_WORDBREAKS//:}
_ticketing() {
    local IFS=$'\\n'
    COMPREPLY=($(ticketing __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ticketing ticketing""",
    "zsh": """\
#compdef ticketing
# ticketing: completion for zsh. In ~/.zshrc, after compinit: source <(ticketing completion zsh)
_ticketing() {
    local -a found
    found=("${(@f)$(ticketing __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -a found
    else
        _files
    fi
}
if [[ "${funcstack[1]}" == "_ticketing" ]]; then
    _ticketing "$@"
else
    compdef _ticketing ticketing
fi""",
    "fish": """\
# ticketing: completion for fish. Save it as ~/.config/fish/completions/ticketing.fish
complete -c ticketing -f -a '(ticketing __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
complete -c ticketing -l config -l admin-config -l token-file -l dir -l from -r -F""",
}

app = new_app()


@app.command(
    epilog="Example: ticketing completion bash > ~/.local/share/bash-completion/completions/ticketing"
)
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {', '.join(SCRIPTS)}.")],
) -> int:
    """Print a shell's completion script. It asks the cluster for keys where that takes no time."""
    script = SCRIPTS.get(shell)
    if script is None:
        raise usage_error(f"SHELL must be one of {', '.join(SCRIPTS)}, not {shell!r}")
    write_line(script)
    return ExitCode.DONE
