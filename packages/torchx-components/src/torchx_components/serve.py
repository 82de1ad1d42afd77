"""Components that serve trained models."""

from __future__ import annotations

import torchx_specs as specs
from torchx_components.app_programs import program_module
from torchx_components.images import IMAGE
from torchx_specs.errors import ComponentArgumentError, nearest

_PORT = 8222
_PARAMS = (
    "model_name",
    "handler",
    "runtime",
    "batch_size",
    "max_batch_delay",
    "initial_workers",
    "synchronous",
    "response_timeout",
    "timeout",
    "port",
)


def torchserve(
    model_path: str,
    management_api: str,
    image: str = IMAGE,
    params: dict[str, str] | None = None,
    dryrun: bool = False,
) -> specs.AppDef:
    r"""Register a model archive with a TorchServe instance, which downloads it from this job.

    ::

        torchx run serve.torchserve --model_path s3://bucket/mnist.mar \
            --management_api http://torchserve:8081 --params model_name=mnist,initial_workers=1

    Args:
        model_path: fsspec URL of the model archive.
        management_api: Address of TorchServe's management API (e.g. http://torchserve:8081).
        image: Container image to run in.
        params: Parameters of TorchServe's "register model" request (model_name, handler, runtime,
            batch_size, max_batch_delay, initial_workers, synchronous, response_timeout), and the
            job's own: timeout in seconds, and port to serve the archive on.
        dryrun: Only check and print the request.
    """
    given = {name: str(value) for name, value in (params or {}).items() if value is not None}
    for name in given:
        if name not in _PARAMS:
            raise ComponentArgumentError(
                f"--params: unknown parameter '{name}';{nearest(name, _PARAMS)}"
                f" valid parameters: {', '.join(_PARAMS)}",
                parameter="params",
            )
    args = ["-m", program_module("serve")]
    args += ["--model_path", model_path, "--management_api", management_api]
    for name, value in given.items():
        args += [f"--{name}", value]
    if dryrun:
        args.append("--dryrun")
    return specs.AppDef(
        name="torchx-torchserve",
        roles=[
            specs.Role(
                name="worker",
                image=image,
                entrypoint="python",
                args=args,
                port_map={"model-download": _port(given.get("port"))},
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
            )
        ],
    )


def _port(text: str | None) -> int:
    if text is None:
        return _PORT
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ComponentArgumentError(
            f"--params: port '{text}' is not a number from 1 to 65535", parameter="params"
        )
    return int(text)
