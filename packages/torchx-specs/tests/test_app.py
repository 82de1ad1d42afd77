"""Tests of apps, roles and overrides."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest

from torchx_specs import (
    MISSING,
    NULL_RESOURCE,
    AppDef,
    AppDryRunInfo,
    BindMount,
    Resource,
    RetryPolicy,
    Role,
    Workspace,
    macros,
)


def full_role() -> Role:
    return Role(
        name="trainer",
        image="img",
        min_replicas=1,
        entrypoint="python",
        args=["-m", "x"],
        env={"A": "1"},
        num_replicas=2,
        max_retries=3,
        retry_policy=RetryPolicy.REPLICA,
        resource=Resource(cpu=1, gpu=2, memMB=3, capabilities={"c": [1]}, tags={"t": 1}),
        port_map={"tb": 6006},
        metadata={"k8s": {"labels": ["a"]}},
        mounts=[BindMount("/a", "/b")],
        workspace=Workspace({"/ws": "x"}),
    )


class TestRole:
    def test_positional_arguments_follow_the_order_of_the_fields(self) -> None:
        assert [f.name for f in dataclasses.fields(Role)] == [
            "name",
            "image",
            "min_replicas",
            "entrypoint",
            "args",
            "env",
            "num_replicas",
            "max_retries",
            "retry_policy",
            "resource",
            "port_map",
            "metadata",
            "mounts",
            "workspace",
            "overrides",
            "base_image",  # by keyword only
        ]

    def test_defaults(self) -> None:
        role = Role("r", "img")
        assert role.entrypoint == MISSING
        assert role.resource is NULL_RESOURCE
        assert (role.num_replicas, role.max_retries, role.min_replicas) == (1, 0, None)
        assert role.retry_policy is RetryPolicy.APPLICATION
        assert (role.args, role.env, role.port_map, role.metadata, role.mounts) == (
            [],
            {},
            {},
            {},
            [],
        )
        assert role.workspace is None

    def test_roles_do_not_share_default_values(self) -> None:
        one, two = Role("a", "i"), Role("b", "i")
        one.args.append("x")
        one.env["k"] = "v"
        one.metadata["k"] = "v"
        assert (two.args, two.env, two.metadata) == ([], {}, {})

    def test_equality(self) -> None:
        assert full_role() == full_role()
        for field in dataclasses.fields(Role):
            if field.name != "overrides":
                changed = dataclasses.replace(full_role(), **{field.name: "something else"})
                assert changed != full_role(), field.name

    def test_deep_copy_shares_no_mutable_values(self) -> None:
        role = full_role()
        new = copy.deepcopy(role)
        assert new == role
        new.args.append("x")
        new.env["B"] = "2"
        new.port_map["x"] = 1
        new.metadata["k8s"]["labels"].append("b")
        new.resource.capabilities["c"].append(2)
        new.resource.tags["u"] = 1
        new.mounts.append(BindMount("/c", "/d"))
        assert isinstance(new.mounts[0], BindMount)
        new.mounts[0].src_path = "/changed"
        assert new.workspace is not None
        new.workspace.projects["/y"] = ""
        assert role == full_role()

    def test_deep_copy_copies_a_resource_without_capabilities(self) -> None:
        role = Role("r", "i", resource=Resource(cpu=1, gpu=0, memMB=1, devices={"d": 1}))
        new = copy.deepcopy(role)
        new.resource.cpu = 5
        new.resource.devices["d"] = 5
        assert (role.resource.cpu, role.resource.devices) == (1, {"d": 1})

    def test_deep_copy_keeps_subclass_and_attributes(self) -> None:
        class Special(Role):
            pass

        role = Special("r", "i")
        role.extra = ["x"]  # type: ignore[attr-defined]
        new = copy.deepcopy(role)
        assert type(new) is Special
        assert new.extra == ["x"]  # type: ignore[attr-defined]
        assert new.extra is not role.extra  # type: ignore[attr-defined]

    def test_deep_copy_of_an_app_keeps_shared_objects_shared(self) -> None:
        shared = {"k": ["v"]}
        app = AppDef("a", roles=[Role("x", "i", metadata=shared), Role("y", "i", metadata=shared)])
        new = copy.deepcopy(app)
        assert new == app
        assert new.roles[0].metadata is new.roles[1].metadata
        assert new.roles[0].metadata is not shared

    def test_role_can_be_pickled(self) -> None:
        assert pickle.loads(pickle.dumps(full_role())) == full_role()  # noqa: S301

    def test_pre_proc_returns_the_request_unchanged(self) -> None:
        info = AppDryRunInfo({"a": 1}, repr)
        assert Role("r", "i").pre_proc("local", info) is info

    @pytest.mark.parametrize("policy", list(RetryPolicy))
    def test_str_of_a_retry_policy_is_its_name(self, policy: RetryPolicy) -> None:
        assert policy == policy.name
        assert str(policy) == f"RetryPolicy.{policy.name}"
        assert RetryPolicy(policy.name) is policy


class TestAppDef:
    app = AppDef("job", roles=[Role("a", "i"), Role("b", "i")])

    def test_role_is_found_by_name(self) -> None:
        assert self.app["b"] is self.app.get_role("b") is self.app.roles[1]

    def test_unknown_role_raises_with_the_known_names(self) -> None:
        with pytest.raises(KeyError, match="no role named `c`; available roles: a, b"):
            self.app["c"]

    def test_in_checks_role_names(self) -> None:
        assert "a" in self.app
        assert "c" not in self.app
        assert self.app.roles[0] not in self.app  # type: ignore[operator]

    def test_app_cannot_be_iterated(self) -> None:
        with pytest.raises(TypeError):
            iter(self.app)  # type: ignore[call-overload]

    def test_as_a_dict(self) -> None:
        data = dataclasses.asdict(AppDef("job", roles=[full_role()], metadata={"m": "1"}))
        assert list(data) == ["name", "roles", "metadata"]
        role = data["roles"][0]
        assert role["retry_policy"] == "REPLICA"
        assert role["mounts"] == [{"src_path": "/a", "dst_path": "/b", "read_only": False}]
        assert role["resource"]["capabilities"] == {"c": [1]}


class TestOverrides:
    def test_plain_value_replaces_the_attribute(self) -> None:
        assert Role("r", "i", overrides={"image": "other"}).image == "other"

    def test_a_callable_is_called_once(self) -> None:
        calls: list[int] = []

        def image() -> str:
            calls.append(1)
            return "made"

        role = Role("r", "i", overrides={"image": image})
        assert calls == []
        assert [role.image, role.image] == ["made", "made"]
        assert calls == [1]

    def test_other_attributes_are_unchanged(self) -> None:
        role = Role("r", "i", overrides={"image": lambda: "made"})
        assert (role.name, role.entrypoint) == ("r", MISSING)

    def test_override_can_read_its_own_attribute(self) -> None:
        role = Role("r", "base")
        role.overrides["image"] = lambda: role.image + ":patched"
        assert role.image == "base:patched"

    def test_failed_override_is_computed_again(self) -> None:
        answers: list[Any] = [ValueError("not yet"), "made"]

        def image() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        role = Role("r", "i", overrides={"image": image})
        with pytest.raises(ValueError, match="not yet"):
            _ = role.image
        assert role.overrides["image"] is image
        assert role.image == "made"
        assert role.overrides["image"]() == "made"

    def test_future_is_resolved(self) -> None:
        future: concurrent.futures.Future[str] = concurrent.futures.Future()
        role = Role("r", "i", overrides={"image": future})
        threading.Timer(0.01, future.set_result, ["later"]).start()
        assert role.image == "later"

    def test_coroutine_is_run(self) -> None:
        async def image() -> str:
            await asyncio.sleep(0)
            return "awaited"

        assert Role("r", "i", overrides={"image": image()}).image == "awaited"
        assert Role("r", "i", overrides={"image": image}).image == "awaited"

    def test_a_coroutine_read_inside_a_running_loop(self) -> None:
        async def image() -> str:
            await asyncio.sleep(0)
            return "awaited"

        async def main() -> str:
            return Role("r", "i", overrides={"image": image}).image

        assert asyncio.run(main()) == "awaited"

    def test_an_error_of_a_coroutine_inside_a_running_loop(self) -> None:
        async def image() -> str:
            raise ValueError("no image")

        async def main() -> str:
            return Role("r", "i", overrides={"image": image}).image

        with pytest.raises(ValueError, match="no image"):
            asyncio.run(main())

    def test_unfinished_task_is_an_error(self) -> None:
        async def main() -> str:
            task = asyncio.ensure_future(asyncio.sleep(0, "late"))
            try:
                return Role("r", "i", overrides={"image": task}).image
            finally:
                await task

        with pytest.raises(RuntimeError, match="currently running in this thread"):
            asyncio.run(main())

    def test_unfinished_future_of_another_loop_is_an_error(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            role = Role("r", "i", overrides={"image": loop.create_future()})
            with pytest.raises(RuntimeError, match="override `image` waits for a future"):
                _ = role.image
        finally:
            loop.close()

    def test_finished_task_is_resolved(self) -> None:
        async def main() -> str:
            task = asyncio.ensure_future(asyncio.sleep(0, "done"))
            await task
            return Role("r", "i", overrides={"image": task}).image

        assert asyncio.run(main()) == "done"

    def test_threads_share_one_call(self) -> None:
        calls: list[int] = []
        started = threading.Barrier(8)

        def image() -> str:
            calls.append(1)
            threading.Event().wait(0.05)
            return "made"

        role = Role("r", "i", overrides={"image": image})

        def read() -> str:
            started.wait()
            return role.image

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda _: read(), range(8))) == ["made"] * 8
        assert calls == [1]

    def test_copies_share_computed_overrides(self) -> None:
        calls: list[int] = []
        role = Role("r", "i", overrides={"image": lambda: calls.append(1) or "made"})
        new = copy.deepcopy(role)
        applied = macros.Values("", "", "").apply(role)
        assert [new.image, applied.image, role.image] == ["made"] * 3
        assert calls == [1]

    def test_overrides_has_only_the_given_keys(self) -> None:
        role = Role("r", "i", overrides={"image": lambda: "made"})
        _ = role.image
        assert list(role.overrides) == ["image"]
        assert repr(role.overrides) == "{'image': 'made'}"

    def test_as_a_dict(self) -> None:
        role = Role("r", "i", overrides={"image": lambda: "made", "entrypoint": lambda: "e"})
        data = dataclasses.asdict(role)
        assert (data["image"], data["entrypoint"]) == ("made", "e")
        assert data["overrides"] == {"image": "made", "entrypoint": "e"}
