"""Training scripts that run with SageMaker's training toolkit.

AWS's own images contain the toolkit; ``pip install sagemaker-training`` adds it to other images.
The toolkit reads its settings, such as the script's name, from hyperparameters whose names begin
with ``sagemaker_``. It passes the other hyperparameters to the script as ``--name value``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from torchx_specs.errors import RequestError
from torchx_specs.model.constants import MISSING

#: Directory in which the toolkit expects the source.
CODE_FOLDER = "/opt/ml/code"
_SUFFIXES = (".py", ".sh")
_LOG_LEVEL = 20


def runs_as_script(entrypoint: str, args: Sequence[str]) -> bool:
    """Return whether a role runs as a script if ``launch`` is ``auto``, the default.

    An entrypoint that is a program, for example ``python``, runs as a command.

    >>> runs_as_script("", ["train.py", "--lr", "1"]), runs_as_script("python", ["train.py"])
    (True, False)
    """
    if entrypoint not in ("", MISSING) and not entrypoint.endswith(_SUFFIXES):
        return False
    try:
        split_script(entrypoint, args)
    except RequestError:
        return False
    return True


def split_script(entrypoint: str, args: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the script or module, and its arguments by name.

    An entrypoint that is no script is ignored, as upstream's TorchX ignores every entrypoint.

    >>> split_script("python", ["train.py"]), split_script("train.py", ["--lr", "1"])
    (('train.py', {}), ('train.py', {'lr': '1'}))

    Raises:
        RequestError: The arguments are not a script or module followed by ``--name value`` pairs.
    """
    argv = [entrypoint, *args] if entrypoint.endswith(_SUFFIXES) else list(args)
    if argv[:1] == ["-m"] and len(argv) > 1:
        program, argv = f"-m {argv[1]}", argv[2:]
    elif argv and argv[0].endswith(_SUFFIXES) and not argv[0].startswith("-"):
        program, argv = argv[0], argv[1:]
    else:
        raise RequestError(
            f"launch=script: the first argument {argv[0]!r} is not a .py or .sh file or -m MODULE"
            if argv
            else "launch=script: the role has no arguments; the first one must be a script"
        )
    return program, _parse_named_arguments(argv)


def _parse_named_arguments(argv: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    while argv:
        argument = argv.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or not name:
            raise RequestError(
                f"launch=script: argument {argument!r} is not of the form --name value; use"
                " launch=command for other arguments"
            )
        if not equals:
            if not argv or argv[0].startswith("--"):
                raise RequestError(
                    f"launch=script: argument {argument} has no value; use --name value, or"
                    " launch=command for other arguments"
                )
            value = argv.pop(0)
        found[name] = value
    return found


def script_hyperparameters(
    program: str,
    given: Mapping[str, str],
    job_name: str,
    source_dir: str | None,
    log_level: int | None,
    region: str,
) -> dict[str, str]:
    """Return the hyperparameters of a script and of the toolkit, each as JSON."""
    own: dict[str, object] = {
        "sagemaker_program": program,
        "sagemaker_submit_directory": source_dir or CODE_FOLDER,
        "sagemaker_container_log_level": _LOG_LEVEL if log_level is None else log_level,
        "sagemaker_job_name": job_name,
        "sagemaker_torch_distributed_enabled": True,
    }
    if region:
        own["sagemaker_region"] = region
    return {name: json.dumps(value) for name, value in {**given, **own}.items()}
