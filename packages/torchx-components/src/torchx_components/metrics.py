"""Components that show metrics of training jobs."""

from __future__ import annotations

import torchx_specs as specs
from torchx_components.app_programs import program_module
from torchx_components.images import IMAGE


def tensorboard(
    logdir: str,
    image: str = IMAGE,
    timeout: float = 60 * 60,
    port: int = 6006,
    start_on_file: str = "",
    exit_on_file: str = "",
) -> specs.AppDef:
    """Run a TensorBoard server; the image must contain the tensorboard package.

    Args:
        logdir: Directory of the events, a path or a URL that TensorBoard can read.
        image: Container image to run in.
        timeout: Stop the server after this many seconds.
        port: Port to listen on.
        start_on_file: Start the server when this fsspec URL exists.
        exit_on_file: Stop the server when this fsspec URL exists.
    """
    args = ["-m", program_module("process_monitor")]
    args += ["--timeout", str(timeout)]
    args += ["--start_on_file", start_on_file]
    args += ["--exit_on_file", exit_on_file]
    args += ["--", "tensorboard", "--bind_all", "--port", str(port), "--logdir", logdir]
    return specs.AppDef(
        name="tensorboard",
        roles=[
            specs.Role(
                name="tensorboard",
                image=image,
                entrypoint="python",
                args=args,
                port_map={"http": port},
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
            )
        ],
    )
