"""Training scripts by SageMaker's training toolkit: arguments as hyperparameters.

The toolkit is in AWS's own images, and can be in any (``pip install sagemaker-training``). It reads
what to run from hyperparameters of its own, and hands the others to the script as ``--name value``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from torchx_specs.errors import RequestError

#: Where the toolkit looks for the source.
CODE_FOLDER = "/opt/ml/code"
_SUFFIXES = (".py", ".sh")
_LOG_LEVEL = 20


def is_script(args: Sequence[str]) -> bool:
    """Returns True for a script or a module with nothing but ``--name value`` pairs.

    >>> is_script(["train.py", "--lr", "0.1"]), is_script(["-c", "echo"])
    (True, False)
    """
    try:
        split_script(args)
    except RequestError:
        return False
    return True


def split_script(args: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns what to run, and its arguments by name.

    Raises:
        RequestError: it is something else
    """
    words = list(args)
    if words[:1] == ["-m"] and len(words) > 1:
        program, words = f"-m {words[1]}", words[2:]
    elif words and words[0].endswith(_SUFFIXES) and not words[0].startswith("-"):
        program, words = words[0], words[1:]
    else:
        raise RequestError(
            "launch=script runs a .py or .sh file, or -m MODULE, as the first argument; the first"
            f" argument is {words[0]!r}"
            if words
            else "launch=script needs a script as argument"
        )
    return program, _named(words)


def _named(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise RequestError(
                f"launch=script takes named arguments (--name value), not {word!r}; launch=command"
                " takes any"
            )
        if not equals:
            if not words or words[0].startswith("--"):
                raise RequestError(
                    f"launch=script: {word} has no value, and a hyperparameter needs one (--name"
                    " value); launch=command takes any"
                )
            value = words.pop(0)
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
    """Returns the hyperparameters of a script, those of the toolkit included, as JSON texts."""
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
