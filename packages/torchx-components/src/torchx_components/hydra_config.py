"""An ``AppDef`` from a Hydra configuration; requires the extra ``hydra``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torchx_specs as specs
from torchx_specs.errors import ComponentArgumentError, ComponentError, TorchXError, one_line
from torchx_specs.model.templates import macros

_MACROS = {
    "app_id": macros.app_id,
    "replica_id": macros.replica_id,
    "rank0_env": macros.rank0_env,
    "img_root": macros.img_root,
}


# Private, because every public function of this package that returns an AppDef is a component.
def _app_from_config(config_dir: str, config_name: str, overrides: list[str]) -> specs.AppDef:
    """Compose a configuration and return the ``AppDef`` under its key ``app``.

    Args:
        config_dir: Directory of the configuration.
        config_name: Name of the configuration, with or without ``.yaml``.
        overrides: Hydra overrides.

    Raises:
        ComponentError: Hydra is not installed, the configuration cannot be composed, or it does not
            describe an ``AppDef``.
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.utils import instantiate
        from omegaconf import OmegaConf
    except ImportError as error:
        raise ComponentError(
            f"utils.hydra needs Hydra ({error}): pip install 'torchx-components[hydra]'"
        ) from None

    directory = os.path.abspath(config_dir)
    where = f"{config_dir}/{config_name.removesuffix('.yaml')}.yaml"
    if not os.path.isdir(directory):
        raise ComponentArgumentError(
            f"--config_dir: directory '{config_dir}' does not exist", parameter="config_dir"
        )
    try:
        with _fresh_hydra(), initialize_config_dir(config_dir=directory, version_base="1.3"):
            config = compose(config_name=config_name, overrides=overrides)
        _add_macros(config)
        if os.environ.get("TORCHX_DEBUG", "0") not in ("", "0"):
            print(f"{where}:\n{OmegaConf.to_yaml(config)}", file=sys.stderr)
        if config.get("app") is None:
            raise ComponentArgumentError(f"{where} has no key 'app'", parameter="config_name")
        app = instantiate(config.app, _convert_="all")
    except TorchXError:
        raise
    except Exception as error:  # Hydra, OmegaConf and `app` raise many classes
        raise ComponentError(f"{where}: {_describe_error(error)}") from error
    if not isinstance(app, specs.AppDef):
        raise ComponentError(
            f"{where}: 'app' must describe an AppDef (_target_: torchx_specs.AppDef),"
            f" got {type(app).__name__}"
        )
    return _with_text(app)


@contextlib.contextmanager
def _fresh_hydra() -> Iterator[None]:
    """Clear Hydra's global state, and restore the calling program's state afterwards."""
    from hydra.core.global_hydra import GlobalHydra

    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = outer


def _add_macros(config: Any) -> None:
    """Add macros to the configuration, as ``${torchx.app_id:}`` and ``${torchx.app_id}``.

    A plain ``${app_id}`` cannot be used, because OmegaConf reads it as a reference to a key. The
    form with a colon calls a resolver, which returns the macro. The form without a colon reads a
    key whose value calls this resolver.
    """
    from omegaconf import OmegaConf, open_dict

    for name, macro in _MACROS.items():
        # Hydra interpolates the result of a resolver again, so escape it.
        escaped = f"\\{macro}"
        OmegaConf.register_new_resolver(
            f"torchx.{name}", lambda escaped=escaped: escaped, replace=True
        )
    with open_dict(config):
        if "torchx" not in config:
            config.torchx = {name: f"${{torchx.{name}:}}" for name in _MACROS}


def _with_text(app: specs.AppDef) -> specs.AppDef:
    """Convert arguments and environment variables to text; YAML reads ``0.1`` as a number."""
    for role in app.roles:
        role.args = [str(arg) for arg in role.args]
        role.env = {name: str(value) for name, value in role.env.items()}
    return app


def _describe_error(error: Exception) -> str:
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return one_line(f"{error}{cause}")
