"""The conformance suite of groups: the driver of a sweep submits apps to the tested scheduler.

::

    class TestAcmeGroups(GroupConformance):
        scheduler_name = "acme"

        @pytest.fixture
        def scheduler(self):
            return create_scheduler("conformance")

The suite needs ``torchx-testing[sweep]``. The driver runs in the process of the test.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs import AppDef, AppState, Role
from torchx_specs.formats import serialize
from torchx_sweep.api import delete_apps
from torchx_sweep.drivers.driver import Driver
from torchx_sweep.store import ElementRecord, ElementState, Store, SweepRecord
from torchx_testing.scheduler_cases.fixtures import SchedulerFixtures, has_name

#: The number of elements of the sweeps in these tests.
COUNT = 5


class Group:
    """A sweep; each of its elements runs one role.

    Args:
        runner: A runner that has the tested scheduler.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler.
        roles: The role of each element.
        settings: Fields of the sweep's record, which replace the defaults of this suite.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: str,
        cfg: dict[str, Any],
        roles: list[Role],
        **settings: Any,
    ) -> None:
        self.id = f"g{os.urandom(4).hex()}"
        self._runner = runner
        fields: dict[str, Any] = {"max_parallel": 3, "retries": 0, "limits": {}, "after": []}
        self._record = SweepRecord(
            self.id, "conformance", "group", scheduler, cfg, "/", time.time(), **fields | settings
        )
        apps = [AppDef("group", [role]) for role in roles]
        elements = [({"i": i}, self.name(i), serialize.to_json(app)) for i, app in enumerate(apps)]
        with Store() as store:
            store.add(self._record, elements)

    def name(self, number: int, attempt: int = 0) -> str:
        """Return the name of the app of an element."""
        return f"group-{self.id}-{number}-{attempt}"

    def drive(self) -> list[ElementRecord]:
        """Run the driver until all elements have ended, and return the elements."""
        with Store() as store:
            Driver(store, self._record, self._runner).run()
            return store.elements(self.id)

    def delete(self) -> None:
        """Delete the apps of the elements."""
        with Store() as store:
            elements = store.elements(self.id)
        delete_apps(self._runner, (h for e in elements for h in (*e.earlier, e.handle) if h))


class GroupConformance(SchedulerFixtures):
    """The conformance tests of groups; see :class:`.scheduler_cases.fixtures.SchedulerFixtures`."""

    def group(self, runner: Runner, cfg: dict[str, Any], script: str, **settings: Any) -> Group:
        """Return a group whose elements run a shell script.

        Args:
            runner: A runner that has the tested scheduler.
            cfg: Options of the scheduler.
            script: The script; ``{i}`` in it becomes the number of the element.
            settings: Fields of the sweep's record, which replace the defaults of this suite.
        """
        roles = [self.sh(script.replace("{i}", str(i))) for i in range(COUNT)]
        self._groups.append(Group(runner, self.scheduler_name, cfg, roles, **settings))
        return self._groups[-1]

    @pytest.fixture(autouse=True)
    def _delete_groups(self, runner: Runner) -> Iterator[None]:
        """Delete the apps of the test's groups after the test."""
        self._groups: list[Group] = []
        yield
        for group in self._groups:
            group.delete()

    def named(self, runner: Runner, cfg: dict[str, Any], group: Group) -> Counter[str]:
        """Count the listed apps that have the name of an element's app, by name."""
        found = runner.list(self.scheduler_name, cfg)
        names = [group.name(i, attempt) for i in range(COUNT) for attempt in (0, 1)]
        return Counter(name for app in found for name in names if has_name(app, name))

    @pytest.mark.gate
    def test_each_element_runs_once_and_ends_in_its_state(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        group = self.group(runner, cfg, "echo element {i}; exit $(({i} % 2))")
        elements = group.drive()
        outcomes = [ElementState.FAILED if i % 2 else ElementState.SUCCEEDED for i in range(COUNT)]
        assert [element.state for element in elements] == outcomes
        assert len({element.handle for element in elements}) == COUNT
        for i, element in enumerate(elements):
            lines = self.complete_lines(runner, element.handle, f"element {i}")
            assert lines.count(f"element {i}\n") == 1
        if not self.lacks("list"):
            assert self.named(runner, cfg, group) == Counter(map(group.name, range(COUNT)))

    def test_a_failed_element_is_submitted_again_under_another_name(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        group = self.group(runner, cfg, "exit $(({i} == 0))", retries=1)
        elements = group.drive()
        assert [element.attempt for element in elements] == [1, 0, 0, 0, 0]
        assert [element.state for element in elements] == [
            ElementState.FAILED,
            *[ElementState.SUCCEEDED] * (COUNT - 1),
        ]
        assert elements[0].earlier
        assert elements[0].earlier != [elements[0].handle]

    def test_an_interrupted_submission_is_not_repeated(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        """Check that a driver takes over the app that was submitted before the driver started."""
        self.needs("list")
        group = self.group(runner, cfg, "exit 0")
        with Store() as store:
            store.claim(group.id, store.elements(group.id, limit=2))
        handle = self.submit(runner, cfg, self.sh("exit 0"), name=group.name(0))
        elements = group.drive()
        assert {element.state for element in elements} == {ElementState.SUCCEEDED}
        assert elements[0].handle == handle
        assert self.named(runner, cfg, group) == Counter(map(group.name, range(COUNT)))

    def test_cancel_ends_all_elements(self, runner: Runner, cfg: dict[str, Any]) -> None:
        group = self.group(runner, cfg, "sleep 300")
        ended: list[ElementRecord] = []
        driver = threading.Thread(target=lambda: ended.extend(group.drive()), daemon=True)
        driver.start()

        def is_one_running() -> bool:
            with Store() as store:
                running = store.elements(group.id, [ElementState.RUNNING], limit=1)
            return any(self.state(runner, e.handle) == AppState.RUNNING for e in running)

        self.until(is_one_running, "no element has started")
        with Store() as store:
            store.cancel(group.id)
        driver.join(self.patience)
        assert not driver.is_alive()
        allowed = {ElementState.CANCELLED}
        if self.lacks("cancel_state"):
            allowed.add(ElementState.FAILED)
        assert {element.state for element in ended} <= allowed
