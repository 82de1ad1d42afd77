"""An ``AppDef`` from a Hydra configuration; needs the extra ``hydra``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torchx_specs as specs
from torchx_specs.errors import ComponentArgumentError, ComponentError, TorchXError
from torchx_specs.model.templates import macros

_MACROS = {
    "app_id": macros.app_id,
    "replica_id": macros.replica_id,
    "rank0_env": macros.rank0_env,
    "img_root": macros.img_root,
}


# Not a public name: every public function of this package that returns an AppDef is a component.
def _app_from_config(config_dir: str, config_name: str, overrides: list[str]) -> specs.AppDef:
    """Composes a configuration and makes the ``AppDef`` under its key ``app``.

    Args:
        config_dir: The folder of the configuration.
        config_name: Its name, with or without ``.yaml``.
        overrides: Hydra overrides.

    Raises:
        ComponentError: Hydra is not installed, the configuration cannot be composed, or does not
            hold an ``AppDef``.
    """
    try:
        from hydra import compose, initialize_config_dir
        from hydra.utils import instantiate
        from omegaconf import OmegaConf
    except ImportError as error:
        raise ComponentError(
            f"utils.hydra needs Hydra ({error}): pip install 'torchx-components[hydra]'"
        ) from None

    folder = os.path.abspath(config_dir)
    where = f"{config_dir}/{config_name.removesuffix('.yaml')}.yaml"
    if not os.path.isdir(folder):
        raise ComponentArgumentError(f"no such folder: {config_dir}", parameter="config_dir")
    try:
        with _fresh_hydra(), initialize_config_dir(config_dir=folder, version_base="1.3"):
            config = compose(config_name=config_name, overrides=overrides)
        _add_macros(config)
        if os.environ.get("TORCHX_DEBUG", "0") not in ("", "0"):
            print(f"{where}:\n{OmegaConf.to_yaml(config)}", file=sys.stderr)
        if config.get("app") is None:
            raise ComponentArgumentError(f"{where} has no key 'app'", parameter="config_name")
        app = instantiate(config.app, _convert_="all")
    except TorchXError:
        raise
    except Exception as error:  # of Hydra, OmegaConf, YAML, or raised by what the file names
        raise ComponentError(f"{where}: {_one_line(error)}") from error
    if not isinstance(app, specs.AppDef):
        raise ComponentError(
            f"{where}: 'app' must describe an AppDef (_target_: torchx_specs.AppDef),"
            f" got {type(app).__name__}"
        )
    return _with_text(app)


@contextlib.contextmanager
def _fresh_hydra() -> Iterator[None]:
    """Keeps our use of Hydra's one global instance from that of a program around us."""
    from hydra.core.global_hydra import GlobalHydra

    around = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = around


def _add_macros(config: Any) -> None:
    """Lets the configuration name macros, as ``${torchx.app_id:}`` or ``${torchx.app_id}``.

    OmegaConf takes ``${app_id}`` for a reference of its own, so that a macro cannot stand there
    as it is. The form with a colon calls a resolver; the other one reads a key, which leads to it.
    """
    from omegaconf import OmegaConf, open_dict

    for name, macro in _MACROS.items():
        # Escaped, since Hydra reads what comes out of a resolver for references once more.
        escaped = f"\\{macro}"
        OmegaConf.register_new_resolver(
            f"torchx.{name}", lambda escaped=escaped: escaped, replace=True
        )
    with open_dict(config):
        if "torchx" not in config:
            config.torchx = {name: f"${{torchx.{name}:}}" for name in _MACROS}


def _with_text(app: specs.AppDef) -> specs.AppDef:
    """Turns numbers among arguments and variables into text: YAML reads ``--lr`` ``0.1`` as one."""
    for role in app.roles:
        role.args = [str(arg) for arg in role.args]
        role.env = {name: str(value) for name, value in role.env.items()}
    return app


def _one_line(error: Exception) -> str:
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return " ".join(f"{error}{cause}".split())
