"""Tests of the help of a component."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, Optional

import pytest

from torchx_specs.components.help import component_help
from torchx_specs.components.materialize import materialize_appdef
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.model.app import AppDef


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


def trainer(
    *script_args: str,
    script: str,
    num_replicas: int = 1,
    j: str = "1x2",
    image: Annotated[str, "-i"] = "img:1",
    env: Optional[dict[str, str]] = None,
    mode: Literal["fast", "slow"] = "fast",
    color: Color = Color.RED,
    debug: bool = False,
    fix_seed: bool = True,
    callback: Any = None,
    raw: bytes = b"",
) -> AppDef:
    """Trains a model.

    It does so on many machines, if there are many machines, and on one otherwise.

    Args:
        script_args: passed to the script
        script: script to run within the image, a file that has to be there
            when the job starts
        num_replicas: how many
        env: environment of every replica
    """
    raise AssertionError


EXPECTED = """\
usage: torchx run trainer --script str [--option VALUE ...] [--] [script_args ...]

Trains a model.

It does so on many machines, if there are many machines, and on one otherwise.

options:
  --script str            script to run within the image, a file that has to be there
                          when the job starts (required)
  --num_replicas int      how many (default: 1)
  -j, --j str             (default: 1x2)
  -i, --image str         (default: img:1)
  --env dict[str,str]     environment of every replica (default: None)
  --mode {fast,slow}      (default: fast)
  --color {RED,BLUE}      (default: RED)
  --debug, --no-debug     (default: False)
  --fix_seed, --no-fix-seed
                          (default: True)
  --callback str          (default: None)
  --raw bytes             (from Python only)

arguments after the options (or after '--'):
  script_args ...         passed to the script (each: str)
"""


def test_shows_docstring_types_and_defaults() -> None:
    assert component_help(trainer, "torchx run trainer") == EXPECTED


def test_usage_shows_the_components_name_by_default() -> None:
    assert component_help(trainer).startswith("usage: trainer --script str")


def test_help_option_raises_the_help() -> None:
    with pytest.raises(ComponentHelpRequested) as asked:
        materialize_appdef(trainer, ["--help"])
    assert str(asked.value) == component_help(trainer)


def test_help_without_a_docstring_shows_the_signature() -> None:
    def plain(msg: str = "hi") -> AppDef:
        raise AssertionError

    assert component_help(plain) == (
        "usage: plain [--option VALUE ...]\n\noptions:\n  --msg str               (default: hi)\n"
    )


def test_help_of_a_class_shows_its_constructor() -> None:
    class Trainer:
        """Trains."""

        def __init__(self, script: str) -> None:
            """
            Args:
                script: what to run
            """

        def build(self) -> AppDef:
            raise AssertionError

    assert component_help(Trainer) == (
        "usage: Trainer --script str\n\nTrains.\n\noptions:\n"
        "  --script str            what to run (required)\n"
    )


def test_help_without_parameters_lists_no_options() -> None:
    def bare() -> AppDef:
        """Does it."""
        raise AssertionError

    assert component_help(bare) == "usage: bare\n\nDoes it.\n"
