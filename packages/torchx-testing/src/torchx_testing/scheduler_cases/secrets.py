"""Conformance tests of secrets in environment variables."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs import (
    AppDef,
    AppState,
    TorchXError,
    parse_app_handle,
    secret,
)
from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.older import features_of
from torchx_testing.scheduler_cases.fixtures import SchedulerFixtures


class SecretCases(SchedulerFixtures):
    """The tests of secrets."""

    @pytest.mark.gate
    def test_a_secret_reaches_the_program_and_nothing_shows_it(
        self,
        runner: Runner,
        scheduler: Scheduler[Any],
        cfg: dict[str, Any],
        store_secret: Callable[[str, str, str], object],
    ) -> None:
        name = f"torchx-conformance-{os.urandom(4).hex()}"
        env = {"CONF_PASSWORD": secret(name, "key")}
        role = self.sh('printf %s "$CONF_PASSWORD" | base64', env=env)
        if not features_of(scheduler).secrets:
            # The program must not receive the reference in place of the secret.
            with pytest.raises(TorchXError, match=r"env\['CONF_PASSWORD'\]"):
                runner.dryrun(AppDef("conf", [role]), self.scheduler_name, cfg)
            return
        self.needs("secrets")
        value = "it's $5 and s3cr3t"
        store_secret(name, "key", value)
        info = runner.dryrun(AppDef("conf", [role]), self.scheduler_name, cfg)
        handle = str(runner.schedule(info))
        status = self.finish(runner, handle)
        assert status.state == AppState.SUCCEEDED
        arrived = base64.b64encode(value.encode()).decode()
        assert arrived + "\n" in self.complete_lines(runner, handle, arrived)
        description = scheduler.describe(parse_app_handle(handle).app_id)
        assert description is not None
        known = [role.env[key] for role in description.roles for key in env if key in role.env]
        assert set(known) <= set(env.values())
        shown = (info, info.request, status, description, runner.list(self.scheduler_name, cfg))
        assert "s3cr3t" not in "".join(f"{item}{item!r}" for item in shown)

    def test_an_app_without_its_secret_does_not_run(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        if features_of(scheduler).secrets:
            self.needs("secrets")
        name = f"torchx-conformance-{os.urandom(4).hex()}"
        role = self.sh("echo ran", env={"CONF_PASSWORD": secret(name, "key")})
        handle = refusal = ""
        try:
            handle = self.submit(runner, cfg, role)
        except TorchXError as e:
            refusal = str(e)
        if not handle:
            assert name in refusal
            return

        def has_failed_or_waits() -> bool:
            status = runner.status(handle)
            assert status is not None
            assert status.state not in (AppState.SUCCEEDED, AppState.CANCELLED)
            reasons = [r.reason for one in status.roles for r in one.replicas]
            return status.state == AppState.FAILED or any(name in reason for reason in reasons)

        self.until(has_failed_or_waits, f"{handle} does not report that {name} is missing")
        if self.state(runner, handle) == AppState.FAILED:
            assert "ran\n" not in self.lines(runner, handle)
