"""Components that show what a training measured."""

from __future__ import annotations

import torchx_specs as specs
from torchx_components.app_programs import module_of
from torchx_specs.images import IMAGE


def tensorboard(
    logdir: str,
    image: str = IMAGE,
    timeout: float = 60 * 60,
    port: int = 6006,
    start_on_file: str = "",
    exit_on_file: str = "",
) -> specs.AppDef:
    """Runs a TensorBoard server; the image needs the tensorboard package.

    Args:
        logdir: where the events are, a path or a location that TensorBoard reads
        image: image to use
        timeout: seconds after which the server ends
        port: port to listen on
        start_on_file: an fsspec location; the server starts once it exists
        exit_on_file: an fsspec location; the server ends once it exists
    """
    args = ["-m", module_of("process_monitor")]
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
