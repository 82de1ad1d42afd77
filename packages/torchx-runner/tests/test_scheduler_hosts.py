"""Tests of schedulers on another host: slurm@login1, and the key ``host`` of a section."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_runner import Runner
from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import InstalledSchedulers, split_host
from torchx_specs import AppDef
from torchx_specs.errors import RequestError, UnknownSchedulerException
from torchx_specs.plugins.records import HostPlugin, SchedulerPlugin
from torchx_specs.schedulers.sessions import NotSupportedError


class NamedHost(LocalHost):
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def clusters(plugins: Any, fake_scheduler_class: Any) -> None:
    """Register a scheduler that can use hosts, one that cannot, and a kind of host."""

    class Cluster(fake_scheduler_class):  # type: ignore[misc]
        features = replace(fake_scheduler_class.features, hosts=True)

    plugins.add("torchx_hosts", HostPlugin("ssh", NamedHost), distribution="hosts")
    plugins.add(
        "torchx_schedulers",
        SchedulerPlugin("cluster", Cluster),
        SchedulerPlugin("local", fake_scheduler_class),
    )


@pytest.mark.usefixtures("clusters")
class TestNames:
    def test_the_factory_gets_the_host_of_the_name(self) -> None:
        installed = InstalledSchedulers()
        created: Any = installed["cluster@user@runner-login1"]("session", timeout=3)
        assert created.params["host"].name == "user@runner-login1"
        assert created.params["timeout"] == 3
        without: Any = installed["cluster"]("session")
        assert without.params == {}

    def test_names_of_known_schedulers_may_have_a_host(self) -> None:
        installed = InstalledSchedulers()
        assert "cluster@login1" in installed
        assert "clutser@login1" not in installed
        assert list(installed) == ["cluster", "local"]
        with pytest.raises(UnknownSchedulerException, match="clutser@login1"):
            Runner("test").scheduler("clutser@login1")

    def test_a_scheduler_without_the_feature_is_refused(self) -> None:
        with pytest.raises(NotSupportedError, match="'local' cannot use another machine"):
            InstalledSchedulers()["local@login1"]("session")

    def test_an_unknown_kind_of_host_is_refused(self) -> None:
        with pytest.raises(RequestError, match="'podman:login1' is of an unknown kind"):
            InstalledSchedulers()["cluster@podman:login1"]("session")

    def test_handles_have_the_host(self, app: AppDef) -> None:
        with Runner("test") as runner:
            handle = runner.schedule(runner.dryrun(app, "cluster@runner-login2"))
            assert handle == "cluster@runner-login2://test/app1"
            status = runner.status(handle)
            assert status is not None
            runner.cancel(handle)
            assert runner.status("cluster://test/app1") is None

    def test_splitting(self) -> None:
        assert split_host("slurm") == ("slurm", "")
        assert split_host("slurm@user@login1") == ("slurm", "user@login1")


@pytest.mark.usefixtures("clusters")
class TestConfiguration:
    def test_the_section_is_that_of_the_scheduler(
        self, cwd: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (cwd / ".torchxconfig").write_text("[cluster]\nhost = login1\nqueue = gpu\n")
        cfg: dict[str, Any] = {}
        with caplog.at_level(logging.WARNING):
            config.apply("cluster@login2", cfg)
        assert cfg == {"queue": "gpu"}
        assert caplog.text == ""

    def test_the_host_of_the_section_is_the_default(self, cwd: Path) -> None:
        (cwd / ".torchxconfig").write_text("[cluster]\nhost = login1\n[near:cluster]\nhost = n1\n")
        assert config.with_host("cluster") == "cluster@login1"
        assert config.with_host("cluster@login2") == "cluster@login2"
        assert config.with_host("local") == "local"
