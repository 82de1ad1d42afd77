"""Write the module of AWS's limits from botocore's models: ``python tools/aws_limits.py write``.

``check`` fails if ``write`` would change torchx_sched_aws/model_limits.py. Both need botocore. The
schedulers read this module instead of botocore's models, because loading the models takes 0.2 s.

A limit is the place of a value in a request, with the largest and smallest length, number or count,
the values, and the pattern. The patterns are Java's; they are written as Python's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from botocore.session import get_session

from workspace import ROOT, write_or_check

MODULE = ROOT / "packages/torchx-sched-aws/src/torchx_sched_aws/model_limits.py"

#: For operations of a service, the places in the request whose limits TorchX needs. The values in
#: these places are included.
PLACES = {
    ("sagemaker", "CreateTrainingJob"): (
        *("AlgorithmSpecification.Container", "AlgorithmSpecification.MetricDefinitions"),
        *("AlgorithmSpecification.Training", "CheckpointConfig", "Environment", "HyperParameters"),
        *("InputDataConfig[].ChannelName", "InputDataConfig[].DataSource.S3DataSource.S3Uri"),
        *("OutputDataConfig", "ResourceConfig.KeepAlive", "ResourceConfig.VolumeKmsKeyId"),
        *("RetryStrategy", "RoleArn", "StoppingCondition.MaxRuntime", "StoppingCondition.MaxWait"),
        *("Tags", "VpcConfig"),
    ),
    ("sagemaker", "ListTrainingJobs"): ("MaxResults",),
    ("logs", "GetLogEvents"): ("limit",),
}
_LINE_ENDS = r"\n\r\x85\u2028\u2029"


def as_python(pattern: str) -> str:
    r"""Return a pattern of Java as a pattern of Python.

    >>> print(as_python(r".*"), as_python(r"[\p{L}\p{N}.]+"))
    [^\n\r\x85\u2028\u2029]* [\w.]+
    """
    for java, python in ((r"\p{L}\p{Z}\p{N}_", r"\w\s"), (r"\p{L}\p{N}", r"\w")):
        pattern = pattern.replace(java, python)
    pattern = pattern.replace(r"\p{Alnum}", "a-zA-Z0-9")
    # A dot outside of [...] matches no line end.
    parts = re.findall(r"\\.|\[(?:\\.|[^\]])*\]|.", pattern)
    return "".join(f"[^{_LINE_ENDS}]" if part == "." else part for part in parts)


def limits(shape: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the limits of a value and of the values in it, by their place in the request."""
    found = {key: shape.metadata[key] for key in ("min", "max") if shape.metadata.get(key)}
    if "pattern" in shape.metadata:
        found["pattern"] = as_python(shape.metadata["pattern"])
    if shape.metadata.get("enum"):
        found["values"] = tuple(shape.metadata["enum"])
    if found:
        yield path, found
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield from limits(member, f"{path}.{name}".lstrip("."))
    elif shape.type_name == "list":
        yield from limits(shape.member, f"{path}[]")
    elif shape.type_name == "map":
        yield from limits(shape.key, f"{path}{{name}}")
        yield from limits(shape.value, f"{path}{{value}}")


def render() -> str:
    """Return the text of the module."""
    lines = [
        '"""Limits of requests to AWS, from botocore\'s models.',
        "",
        "Written by `python tools/aws_limits.py write`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any",
        "",
        "# ruff: noqa: E501",
        "# fmt: off",
    ]
    session = get_session()
    for (service, operation), places in PLACES.items():
        shape = session.get_service_model(service).operation_model(operation).input_shape
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
        lines += ["", f"#: Limits of ``{operation}``.", f"{name}: dict[str, dict[str, Any]] = {{"]
        lines += [
            f"    {path!r}: {found!r},"
            for path, found in limits(shape, "")
            if path.startswith(places)
        ]
        lines.append("}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(write_or_check(MODULE, render, sys.argv[1:]))
