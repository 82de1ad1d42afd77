"""Tests of utils.hydra, which returns the app of a Hydra configuration."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

import torchx_specs as specs
from torchx_components import utils
from torchx_specs.errors import TorchXError

CONFIG = """
lr: 0.1
app:
  _target_: torchx_specs.AppDef
  name: from-hydra
  metadata: {team: ml}
  roles:
    - _target_: torchx_specs.Role
      name: trainer
      image: img
      entrypoint: train
      args: [--lr, "${lr}", --id, "${torchx.app_id}", "${torchx.replica_id:}"]
      env: {RANK0: "${torchx.rank0_env}", ROOT: "${torchx.img_root:}/x", N: 3}
      num_replicas: 2
      resource: {_target_: torchx_specs.resource, h: gpu.small}
"""


@pytest.fixture(autouse=True)
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHX_DEBUG", raising=False)
    folder = tmp_path / ".torchx"
    folder.mkdir()
    (folder / "job.yaml").write_text(CONFIG)
    return folder


def test_hydra_returns_the_configured_app() -> None:
    assert utils.hydra(config_name="job") == specs.AppDef(
        name="from-hydra",
        metadata={"team": "ml"},
        roles=[
            specs.Role(
                name="trainer",
                image="img",
                entrypoint="train",
                # Numbers in YAML become text.
                args=["--lr", "0.1", "--id", "${app_id}", "${replica_id}"],
                env={"RANK0": "${rank0_env}", "ROOT": "${img_root}/x", "N": "3"},
                num_replicas=2,
                resource=specs.resource(h="gpu.small"),
            )
        ],
    )


def test_hydra_returns_plain_lists_and_dicts() -> None:
    role = utils.hydra(config_name="job").roles[0]
    assert type(role.args) is list
    assert type(role.env) is dict


def test_hydra_applies_overrides_and_config_dir(tmp_path: Path, configs: Path) -> None:
    configs.rename(tmp_path / "elsewhere")
    app = utils.hydra("lr=1e-3", "app.name=other", config_name="job.yaml", config_dir="elsewhere")
    assert app.name == "other"
    assert app.roles[0].args[1] == "0.001"


def test_configuration_may_have_its_own_key_torchx(configs: Path) -> None:
    text = CONFIG.replace("${torchx.app_id}", "${torchx.mine}").replace("_env}", "_env:}")
    (configs / "job.yaml").write_text(f"torchx: {{mine: yes it is}}\n{text}")
    assert utils.hydra(config_name="job").roles[0].args[3] == "yes it is"


def test_hydra_can_run_many_times_in_one_process() -> None:
    """Check a second call, which fails in torchx-nightly."""
    assert utils.hydra(config_name="job") == utils.hydra(config_name="job")
    assert not GlobalHydra.instance().is_initialized()


@pytest.fixture
def program_with_hydra(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/main.yaml").write_text("a: 1")
    with initialize_config_dir(config_dir=str(tmp_path / "mine"), version_base="1.3"):
        yield


@pytest.mark.usefixtures("program_with_hydra")
def test_hydra_of_the_calling_program_is_restored() -> None:
    assert utils.hydra(config_name="job").name == "from-hydra"
    assert compose(config_name="main").a == 1


def test_torchx_debug_prints_the_configuration_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHX_DEBUG", "1")
    utils.hydra(config_name="job")
    output = capsys.readouterr()
    assert "name: from-hydra" in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("overrides", "config", "message"),
    [
        ([], {"config_name": "nope"}, ".torchx/nope.yaml: Cannot find primary config 'nope'"),
        (
            [],
            {"config_name": "job", "config_dir": "nodir"},
            "--config_dir: directory 'nodir' does not exist",
        ),
        (["typo=1"], {"config_name": "job"}, "Could not override 'typo'"),
        (["x"], {"config_name": "job"}, "'x'"),
        (["~app"], {"config_name": "job"}, ".torchx/job.yaml has no key 'app'"),
        (["app=null"], {"config_name": "job"}, "has no key 'app'"),
        (["app=3"], {"config_name": "job"}, "Cannot instantiate config of type int"),
        (["app._target_=builtins.dict"], {"config_name": "job"}, "an AppDef.*got dict"),
        (["app._target_=no.such"], {"config_name": "job"}, "no.such"),
        (["+app.nope=1"], {"config_name": "job"}, "nope"),
        (["lr=${missing}"], {"config_name": "job"}, "missing"),
    ],
)
def test_invalid_configuration_is_an_error_of_one_line(
    overrides: list[str], config: dict[str, str], message: str
) -> None:
    with pytest.raises(TorchXError) as caught:
        utils.hydra(*overrides, **config)  # type: ignore[arg-type]
    assert re.search(message, str(caught.value))
    assert "\n" not in str(caught.value)


def test_invalid_yaml_is_an_error_of_one_line(configs: Path) -> None:
    (configs / "job.yaml").write_text("app: [")
    with pytest.raises(TorchXError, match=r"\.torchx/job\.yaml: "):
        utils.hydra(config_name="job")


def test_missing_hydra_is_an_error_with_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra", None)
    with pytest.raises(TorchXError, match=r"pip install 'torchx-components\[hydra\]'"):
        utils.hydra(config_name="job")
