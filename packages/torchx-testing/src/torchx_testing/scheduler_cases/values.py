"""Conformance tests of the arguments, environment variables and names that jobs get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs import (
    AppDef,
    AppState,
    Role,
    TorchXError,
    macros,
    parse_app_handle,
)
from torchx_testing.hostile import (
    HOSTILE_VALUES,
    NOT_UTF8,
    Dump,
    HostileValue,
    dump_args,
    parse_dump,
    python_dump_args,
)
from torchx_testing.scheduler_cases.fixtures import SchedulerFixtures

#: Names of apps and roles. A backend must either accept or refuse each name.
ODD_NAMES = [
    "a b",
    "UPPER.lower_1-2",
    "\u00fcml\u00e4ut",
    "1",
    "-dash",
    "dash-",
    "a/b",
    "../up",
    pytest.param("a'b\"c", marks=pytest.mark.gate),
    "$(exit 7)",
    "a:b",
    "x" * 200,
]


class ValueCases(SchedulerFixtures):
    """The tests of arguments, environment variables and names."""

    @pytest.mark.gate
    def test_macros(self, runner: Runner, cfg: dict[str, Any]) -> None:
        role = self.sh(
            'echo "$1 $2 $APP"; echo end',
            args=[
                "-c",
                'echo "$1 $2 $APP"; echo end',
                "sh",
                macros.app_id,
                macros.replica_id,
            ],
            env={"APP": f"<{macros.app_id}>"},
        )
        handle = self.submit(runner, cfg, role)
        self.finish(runner, handle)
        app_id, replica, again = self.complete_lines(runner, handle, "end")[0].split()
        assert replica == "0"
        assert again == f"<{app_id}>"
        # The id in the handle may have a prefix, such as a namespace or a queue, that the macro's
        # value lacks.
        assert parse_app_handle(handle).app_id.endswith(app_id)

    def test_job_knows_its_handle(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh('echo "$TORCHX_JOB_ID"; echo end'))
        self.finish(runner, handle)
        known = self.complete_lines(runner, handle, "end")[0].strip()
        assert known.startswith(f"{self.scheduler_name}://conformance/")
        assert handle.endswith(known.rpartition("/")[2])

    @pytest.mark.gate
    def test_rank0_host(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("rank0")
        # The argument is a template, so dollar signs are doubled: the shell reads `$$name`.
        script = f'name={macros.rank0_env}; eval "echo host \\"\\$$$$name\\"."; echo end'
        handle = self.submit(runner, cfg, self.sh(script, num_replicas=2))
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        first, second = (
            next(
                line
                for line in self.complete_lines(runner, handle, "end", k=k)
                if line.startswith("host ")
            )
            for k in range(2)
        )
        # Replica 0 may leave the variable empty; the program then uses localhost.
        assert second != "host .\n"
        assert first in (second, "host localhost.\n", "host .\n")

    @pytest.mark.gate
    def test_hostile_arguments(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("hostile_arguments")
        values = self._carried()
        for printed_by in self._dumpers():
            arrived: list[str] = []
            for chunk in self._chunks(values):
                texts = [value.text for value in chunk]
                arrived += self._dump(runner, cfg, self._dumper(printed_by, texts)).args
            assert len(arrived) == len(values)
            wrong = [v.name for v, got in zip(values, arrived, strict=True) if v.text != got]
            assert not wrong, f"{len(wrong)} of {len(values)} arguments arrived changed: {wrong}"

    @pytest.mark.gate
    def test_hostile_environment(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("hostile_environment")
        values = {f"HOSTILE_{i:03}": value for i, value in enumerate(self._carried())}
        for printed_by in self._dumpers():
            arrived: dict[str, str] = {}
            for chunk in self._chunks(list(values)):
                env = {name: values[name].text for name in chunk}
                arrived.update(self._dump(runner, cfg, self._dumper(printed_by, [], env)).env)
            wrong = [v.name for name, v in values.items() if arrived.get(name) != v.text]
            assert not wrong, f"{len(wrong)} of {len(values)} variables arrived changed: {wrong}"

    def test_what_cannot_be_carried_is_refused(self, runner: Runner, cfg: dict[str, Any]) -> None:
        for value in HOSTILE_VALUES:
            reason = self._why_not(value)
            if reason is None:
                continue
            self.declare(f"value '{value.name:.40}'", reason)
            for role in (self.sh("", args=["x", value.text]), self.sh("", env={"A": value.text})):
                with pytest.raises(TorchXError):
                    runner.dryrun(AppDef("conf", [role]), self.scheduler_name, cfg)

    def test_bytes_that_are_not_utf8(self, runner: Runner, cfg: dict[str, Any]) -> None:
        texts = [value.text for value in NOT_UTF8]
        env = {f"HOSTILE_{i:03}": text for i, text in enumerate(texts)}
        role = self._dumper("sh", texts, env)
        if self.lacks("not_utf8"):
            # The scheduler must refuse a value that cannot reach the job unchanged.
            for part in (self._dumper("sh", texts), self._dumper("sh", [], env)):
                with pytest.raises(TorchXError):
                    runner.dryrun(AppDef("conf", [part]), self.scheduler_name, cfg)
            return
        dump = self._dump(runner, cfg, role)
        assert dump.args == texts
        assert {name: dump.env.get(name) for name in env} == env

    def _why_not(self, value: HostileValue) -> str | None:
        reasons = (why for name, why in self.cannot_carry.items() if value.name.startswith(name))
        return next(reasons, None)

    def _carried(self) -> list[HostileValue]:
        return [value for value in HOSTILE_VALUES if self._why_not(value) is None]

    def _chunks(self, values: list[Any]) -> Iterator[list[Any]]:
        for start in range(0, len(values), self.hostile_chunk):
            yield values[start : start + self.hostile_chunk]

    def _dumpers(self) -> list[str]:
        return ["sh", self.python] if self.python else ["sh"]

    def _dumper(self, program: str, values: list[str], env: dict[str, str] | None = None) -> Role:
        args = dump_args(values) if program == "sh" else python_dump_args(values)
        role = self.sh("", args=args, env=env or {})
        role.entrypoint = program
        return role

    def _dump(self, runner: Runner, cfg: dict[str, Any], role: Role) -> Dump:
        handle = self.submit(runner, cfg, role)
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        return parse_dump(self.complete_lines(runner, handle, "ENV-END"))

    @pytest.mark.parametrize(
        "name",
        ["with-dash", pytest.param("with_underscore", marks=pytest.mark.gate), "Upper", "x" * 60],
    )
    def test_odd_names(self, runner: Runner, cfg: dict[str, Any], name: str) -> None:
        self.needs("odd_names")
        handle = self.submit(runner, cfg, self.sh("echo end", name), name=name)
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        assert "end\n" in self.complete_lines(runner, handle, "end", name)

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_any_name_is_taken_or_refused(
        self, runner: Runner, cfg: dict[str, Any], name: str
    ) -> None:
        """Check that a name is either used, or refused before anything is submitted."""
        taken = []
        for app in (
            AppDef(name, [self.sh("echo end")]),
            AppDef("conf", [self.sh("echo end", name)]),
        ):
            try:
                runner.dryrun(app, self.scheduler_name, cfg)
            except TorchXError:
                continue
            taken.append((app, str(runner.run(app, self.scheduler_name, cfg))))
        for app, handle in taken:
            assert self.finish(runner, handle).state == AppState.SUCCEEDED
            lines = self.complete_lines(runner, handle, "end", app.roles[0].name)
            assert "end\n" in lines
