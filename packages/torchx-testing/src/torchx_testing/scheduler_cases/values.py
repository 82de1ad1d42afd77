"""Conformance tests of the arguments, environment variables and names that jobs get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import pytest

from torchx_runner import Runner
from torchx_specs import (
    AppDef,
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
    "../up",
    "a/b",
    "a'b\"c",
    "$(exit 7)",
    "a:b",
    "a b",
    "UPPER.lower_1-2",
    "\u00fcml\u00e4ut",
    "1",
    "-dash",
    "dash-",
    "x" * 200,
]
#: Names of roles that a backend must accept unless it lacks `odd_names`.
PLAIN_NAMES = ["with-dash", "with_underscore", "Upper", "y" * 60]
#: The number of roles of one app in the test of odd names. Each role of a heterogeneous Slurm job
#: gets nodes of its own.
ROLES = 4
ARGUMENTS, ENVIRONMENT = HOSTILE_FEATURES = ("hostile_arguments", "hostile_environment")

T = TypeVar("T")
#: A value, and the feature by which the job gets it.
Item: TypeAlias = tuple[str, HostileValue]


def _variables(texts: list[str]) -> dict[str, str]:
    return {f"HOSTILE_{i:03}": text for i, text in enumerate(texts)}


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
        handle, _ = self.ended(runner, cfg, role)
        app_id, replica, again = self.complete_lines(runner, handle, "end")[0].split()
        assert replica == "0"
        assert again == f"<{app_id}>"
        # The id in the handle may have a prefix, such as a namespace or a queue, that the macro's
        # value lacks.
        assert parse_app_handle(handle).app_id.endswith(app_id)

    def test_job_knows_its_handle(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle, _ = self.ended(runner, cfg, self.sh('echo "$TORCHX_JOB_ID"; echo end'))
        known = self.complete_lines(runner, handle, "end")[0].strip()
        assert known.startswith(f"{self.scheduler_name}://conformance/")
        assert handle.endswith(known.rpartition("/")[2])

    @pytest.mark.gate
    def test_replicas_know_their_place_and_rank0(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("rank0")
        # The argument is a template, so dollar signs are doubled: the shell reads `$$name`.
        script = (
            f'name={macros.rank0_env}; eval "echo host \\"\\$$$$name\\".";'
            ' echo "place $TORCHX_ROLE ${TORCHX_REPLICA_ID-none} $TORCHX_NUM_REPLICAS"; echo end'
        )
        handle = self.succeeded(runner, cfg, self.sh(script, num_replicas=2))
        logs = [self.complete_lines(runner, handle, "end", k=k) for k in range(2)]
        for k, log in enumerate(logs):
            [words] = (line.split() for line in log if line.startswith("place "))
            _, role, replica, number = words
            assert (role, number) == ("main", "2")
            # Schedulers of other packages may not set this variable.
            assert replica in (str(k), "none")
        first, second = (next(line for line in log if line.startswith("host ")) for log in logs)
        # Replica 0 may leave the variable empty; the program then uses localhost.
        assert second != "host .\n"
        assert first in (second, "host localhost.\n", "host .\n")

    @pytest.mark.gate
    def test_hostile_values(self, runner: Runner, cfg: dict[str, Any]) -> None:
        """Check the arguments and the environment variables of the same jobs."""
        tested = [feature for feature in HOSTILE_FEATURES if not self.lacks(feature)]
        if not tested:
            self.needs(HOSTILE_FEATURES[0])
        carried = [value for value in HOSTILE_VALUES if self._why_not(value) is None]
        items = [(feature, value) for value in carried for feature in tested]
        for printed_by in filter(None, ("sh", self.python)):

            def roles(part: list[Item], program: str = printed_by) -> list[Role]:
                args, env = (
                    [value.text for of, value in part if of == feature]
                    for feature in HOSTILE_FEATURES
                )
                return [self._dumper(program, args, _variables(env))]

            changed = []
            for part in self._fitting(runner, cfg, items, roles):
                [role] = roles(part)
                dump = self._dump(runner, cfg, role)
                arrived = {ARGUMENTS: iter(dump.args), ENVIRONMENT: map(dump.env.get, role.env)}
                changed += [
                    (feature, value.name)
                    for feature, value in part
                    if next(arrived[feature], None) != value.text
                ]
                assert not list(arrived[ARGUMENTS]), "the job got more arguments"
            assert not changed, f"values that arrived changed: {changed}"

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
        env = _variables(texts)
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

    def _fitting(
        self,
        runner: Runner,
        cfg: dict[str, Any],
        items: list[T],
        roles: Callable[[list[T]], list[Role]],
    ) -> Iterator[list[T]]:
        """Yield the items in parts that are small enough for one app, whose roles ``roles`` makes.

        An app that the dry run refuses is halved.

        Raises:
            TorchXError: An app with a single item is refused.
        """
        waiting = [items] if items else []
        while waiting:
            part = waiting.pop()
            try:
                runner.dryrun(AppDef("conf", roles(part)), self.scheduler_name, cfg)
            except TorchXError:
                if len(part) == 1:
                    raise
                middle = (len(part) + 1) // 2
                waiting += [part[middle:], part[:middle]]
            else:
                yield part

    def _dumper(self, program: str, values: list[str], env: dict[str, str] | None = None) -> Role:
        args = dump_args(values) if program == "sh" else python_dump_args(values)
        role = self.sh("", args=args, env=env or {})
        role.entrypoint = program
        return role

    def _dump(self, runner: Runner, cfg: dict[str, Any], role: Role) -> Dump:
        handle = self.succeeded(runner, cfg, role)
        return parse_dump(self.complete_lines(runner, handle, "ENV-END"))

    @pytest.mark.gate
    def test_any_name_of_a_role_is_accepted_or_refused(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        """Check that each name is either used, or refused before anything is submitted."""
        apps = {name: AppDef("conf", [self.sh("", name)]) for name in ODD_NAMES}
        names = [name for name, app in apps.items() if self._accepts(runner, cfg, app)]
        if not self.lacks("odd_names"):
            names += PLAIN_NAMES

        def roles(chunk: list[str]) -> list[Role]:
            return [self.sh(f"echo role {i}; echo end", name) for i, name in enumerate(chunk)]

        size = 1 if self.lacks("several_roles") else ROLES
        for start in range(0, len(names), size):
            for chunk in self._fitting(runner, cfg, names[start : start + size], roles):
                handle = self.succeeded(runner, cfg, *roles(chunk))
                for i, name in enumerate(chunk):
                    assert f"role {i}\n" in self.complete_lines(runner, handle, "end", name)

    @pytest.mark.gate
    def test_any_name_of_an_app_is_accepted_or_refused(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        """Check that the scheduler accepts or refuses each name; run the first accepted one."""
        role = self.sh("echo end")
        names = [n for n in ODD_NAMES if self._accepts(runner, cfg, AppDef(n, [role]))]
        handle = self.succeeded(runner, cfg, role, name=next(iter(names), "conf"))
        assert "end\n" in self.complete_lines(runner, handle, "end")

    def _accepts(self, runner: Runner, cfg: dict[str, Any], app: AppDef) -> bool:
        try:
            runner.dryrun(app, self.scheduler_name, cfg)
        except TorchXError:
            return False
        return True
