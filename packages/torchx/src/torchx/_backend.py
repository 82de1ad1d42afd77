"""Makes a module forward to a scheduler or builder whose distribution may not be installed.

Importing the forwarding module always succeeds. If the distribution is missing, calling
``create_scheduler`` or importing any other name raises an error that contains the command to
install the distribution.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from torchx._forward import forward, install_hint

# Names that the scheduler modules of older TorchX releases import. Other programs import these
# names from the scheduler modules.
_IMPORTED_NAMES = {
    "DirWorkspaceMixin": "torchx_kit.workspace.dir_builder",
    "DockerWorkspaceMixin": "torchx_workspace_docker.docker_workspace",
    "LogIterator": "torchx_sched_local.scheduler",
    "MultiWorkspaceMixin": "torchx._legacy_workspace",
    "PIPE": "subprocess",
    "StructuredNameArgument": "torchx_components.structured_arg",
    "WorkspaceMixin": "torchx_specs.workspace",
    "get_device_mounts": "torchx_kit.devices",
    "none_throws": "torchx._legacy_types",
    "walk_workspace": "torchx_kit.workspace",
}


def forward_backend(
    module_name: str,
    source: str,
    *,
    extra: str,
    distribution: str,
    legacy: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> None:
    """Forward the calling module to ``source``.

    If ``source`` is not installed, the names of the calling module raise errors.

    Args:
        module_name: ``__name__`` of the calling module.
        source: The module that defines the names.
        extra: The extra of ``torchx`` that installs the distribution; part of the errors.
        distribution: The distribution of ``source``; part of the errors.
        legacy: Modules with further names, which only clients of older TorchX releases use.
        names: Maps further names to the modules that define them.
    """
    module = sys.modules[module_name]
    module.__dict__.pop("forward_backend", None)
    root = source.partition(".")[0]
    if importlib.util.find_spec(root) is not None:
        from torchx_specs import schedulers

        forward(
            module_name,
            source,
            *legacy,
            f"{schedulers.__name__}.api",
            "torchx_specs",
            "torchx_kit.names.ids",
            "torchx_kit.logs.lines",
            names={**_IMPORTED_NAMES, **(names or {})},
        )
        return
    refuse_names(module_name, install_hint(extra, distribution))


def refuse_names(module_name: str, hint: str) -> None:
    """Let the names of a module raise an error that contains ``hint``, when they are used."""
    module = sys.modules[module_name]
    module.__dict__.pop("refuse_names", None)

    def create_scheduler(session_name: str, **kwargs: Any) -> NoReturn:
        """Raise a PluginError with the hint."""
        from torchx_specs.errors import PluginError

        raise PluginError(f"{module_name.rpartition('.')[2]}: {hint}")

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 - it becomes the module's
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"cannot import name '{name}' from '{module_name}': {hint}")

    module.__dict__["create_scheduler"] = create_scheduler
    module.__dict__["__getattr__"] = __getattr__
