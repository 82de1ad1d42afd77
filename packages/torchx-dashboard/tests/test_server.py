"""Data, actions and the stream of events, without a browser."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dashboard_helpers as helpers
import pytest

from patience import PATIENCE
from torchx_dashboard import cluster
from torchx_dashboard.jobs import Jobs, Journal
from torchx_dashboard.logs import log_messages
from torchx_dashboard.page import MODULES, STATIC, WORKER_MODULES, document, front_end
from torchx_dashboard.runs import media_type, shown_values
from torchx_dashboard.stream import Stream
from torchx_specs import AppState
from torchx_specs.schedulers import GpuCounts


def request(scheduler: Any, method: str, path: str, **options: Any) -> Any:
    async def send() -> Any:
        async with helpers.client_of(scheduler, allow_actions=True) as client:
            return await client.request(method, path, **options)

    return helpers.run(send())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/job?handle=memory://torchx/gone", 404),
        ("/api/job?handle=nonsense", 400),
        ("/api/job?handle=other://torchx/a", 400),
        ("/api/job", 400),
        ("/api/log?handle=memory://torchx/a&role=r&replica=x", 400),
        ("/api/run?tracker=none&id=x", 400),
        ("/api/artifact?tracker=none&id=x&name=/etc/passwd", 400),
    ],
)
def test_wrong_request_gets_an_error_as_json(scheduler: Any, path: str, status: int) -> None:
    answer = request(scheduler, "GET", path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


@pytest.mark.parametrize("body", ["[]", "{", "[" * 100_000, '{"remove": 1}', '{"add": [1]}'])
def test_malformed_body_is_refused(scheduler: Any, body: str) -> None:
    assert request(scheduler, "POST", "/api/subscribe", content=body).status_code in (400, 410)


def test_large_body_is_refused(scheduler: Any) -> None:
    body = json.dumps({"handle": "x" * 100_000})
    assert request(scheduler, "POST", "/api/action", content=body).status_code == 400


def test_action_needs_the_option() -> None:
    scheduler = helpers.MemoryScheduler({"a": AppState.RUNNING})

    async def act() -> int:
        async with helpers.client_of(scheduler) as client:
            body = {"action": "cancel", "handle": "memory://torchx/a"}
            return int((await client.post("/api/action", json=body)).status_code)

    assert helpers.run(act()) == 403
    assert scheduler.cancelled == []


def test_cancel_ends_the_job(scheduler: Any) -> None:
    body = {"action": "cancel", "handle": "memory://torchx/a"}
    assert request(scheduler, "POST", "/api/action", json=body).json() == {
        "handle": "memory://torchx/a"
    }
    assert scheduler.cancelled == ["a"]


def test_page_works_below_a_prefix() -> None:
    async def statuses() -> list[int]:
        async with helpers.client_of(prefix="/user/me/proxy/") as client:
            paths = ("/user/me/proxy/", "/user/me/proxy/api/info", "/user/me/proxy/worker.js")
            return [(await client.get(path)).status_code for path in paths]

    assert helpers.run(statuses()) == [200, 200, 200]


def test_api_below_a_prefix_needs_the_token() -> None:
    async def status() -> int:
        async with helpers.client_of(prefix="/p") as client:
            answer = await client.get("/p/api/info", headers={"X-TorchX-Token": ""})
            return int(answer.status_code)

    assert helpers.run(status()) == 401


async def first_messages(jobs: Jobs, count: int) -> list[Any]:
    messages = jobs.messages({})
    found = [await anext(messages) for _ in range(count)]
    await messages.aclose()  # type: ignore[attr-defined]
    return found


def test_jobs_are_sent_once_and_then_only_changes(scheduler: Any) -> None:
    async def main() -> None:
        jobs = Jobs(helpers.runners_of(scheduler), Journal())
        messages = jobs.messages({})
        first = await anext(messages)
        assert {row["id"] for row in first["rows"]} == {"a", "b"}
        assert [row["reason"] for row in first["rows"] if row["id"] == "b"] == [
            "Priority: other jobs"
        ]
        scheduler.apps["a"] = AppState.SUCCEEDED
        del scheduler.apps["b"]
        jobs.poll_now("memory")
        second = await anext(messages)
        assert [(row["id"], row["state"]) for row in second["rows"]] == [("a", "SUCCEEDED")]
        assert second["removed"] == ["memory://torchx/b"]

    helpers.run(main())


def test_scheduler_that_hangs_does_not_hide_the_jobs_of_others(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchx_dashboard.jobs.PATIENCE", 0.01)
    Path(".torchxconfig").write_text("[hanging]\nkey = value\n", "utf-8")
    hanging = helpers.MemoryScheduler({"x": AppState.RUNNING})
    hanging.backend = "hanging"
    ended = threading.Event()
    calls = []

    def hang() -> None:
        calls.append(1)
        ended.wait()

    hanging.on_list = hang

    async def main() -> None:
        jobs = Jobs(helpers.runners_of(scheduler, hanging), Journal())
        messages = jobs.messages({})
        rows, states = set(), {}
        while not (rows and states.get("hanging", {}).get("state") == "silent"):
            message = await anext(messages)
            rows |= {row["handle"] for row in message["rows"]}
            states = message["schedulers"]
        assert "memory://torchx/a" in rows
        assert len(calls) == 1
        ended.set()

    try:
        helpers.run(main())
    finally:
        ended.set()


def test_schedulers_in_use_are_queried_first(scheduler: Any) -> None:
    Path(".torchxconfig").write_text("[used]\nkey = value\n", "utf-8")
    used = helpers.MemoryScheduler({"x": AppState.RUNNING})
    used.backend = "used"
    calls: list[str] = []
    go = threading.Event()
    scheduler.on_list = lambda: calls.append("memory")

    def slow() -> None:
        go.wait()
        calls.append("used")

    used.on_list = slow

    async def main() -> None:
        jobs = Jobs(helpers.runners_of(scheduler, used), Journal())
        messages = jobs.messages({})
        threading.Timer(0.05, go.set).start()
        rows: set[str] = set()
        while "memory://torchx/a" not in rows:
            rows |= {row["handle"] for row in (await anext(messages))["rows"]}
        assert calls == ["used", "memory"]
        assert {row["handle"] for row in jobs.known()["rows"]} == rows

    helpers.run(main())


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (GpuCounts(free=4, used=2, unavailable=1), {"free": 4, "used": 2, "unavailable": 1}),
        (RuntimeError("forbidden: password=hunter2hunter2"), {"error": "forbidden: password=***"}),
    ],
)
def test_gpus_of_schedulers_that_can_count_them(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, result: Any, shown: Any
) -> None:
    monkeypatch.setattr("torchx_dashboard.cluster.PATIENCE", PATIENCE)
    counting = helpers.MemoryScheduler({})
    counting.backend = "gpu"
    counting.features = replace(counting.features, gpus=True)

    def gpus(cfg: Any = None) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    counting.gpus = gpus  # type: ignore[method-assign]
    runners = helpers.runners_of(scheduler, counting)

    async def main() -> list[Any]:
        return [await cluster.gpus(runners.of(name), name) for name in ("memory", "gpu")]

    assert helpers.run(main()) == [None, shown]


def test_scheduler_that_fails_shows_its_error_without_secrets(scheduler: Any) -> None:
    def fail() -> None:
        raise RuntimeError("no route\nto host, password=hunter2hunter2")

    scheduler.on_list = fail

    async def main() -> Any:
        [message] = await first_messages(Jobs(helpers.runners_of(scheduler), Journal()), 1)
        return message["schedulers"]["memory"]

    found = helpers.run(main())
    assert found["state"] == "unused"
    assert "no route to host" in found["error"]
    assert "hunter2" not in found["error"]


def log_texts(scheduler: Any, **parameters: Any) -> dict[str, str]:
    async def main() -> dict[str, str]:
        found: dict[str, str] = {}
        query = {"handle": "memory://torchx/a", "replicas": [["r", 0]], **parameters}
        async for parts in log_messages(helpers.runners_of(scheduler).of("memory"), query):
            for part in parts:
                found[part["log"]] = found.get(part["log"], "") + part.get("text", "!")
        return found

    result: dict[str, str] = helpers.run(main())
    return result


def test_log_is_complete_with_long_lines_and_lone_surrogates(scheduler: Any) -> None:
    scheduler.lines = [f"{i}\n" for i in range(3000)] + ["x" * 1_000_000 + "\n", "\udcff\x00 end"]
    assert log_texts(scheduler) == {"combined/r/0": "".join(scheduler.lines)}


@pytest.mark.parametrize("skip", [0, 1, 2, 3])
def test_log_continues_after_the_lines_that_the_page_has(scheduler: Any, skip: int) -> None:
    scheduler.lines = ["one\n", "two\n", "three\n"]
    found = log_texts(scheduler, skip={"combined/r/0": skip})
    assert found.get("combined/r/0", "") == "".join(scheduler.lines[skip:])


def test_stream_reports_a_failing_topic_and_continues_with_the_others() -> None:
    async def fails(_: Any) -> AsyncIterator[Any]:
        yield {"n": 1}
        raise RuntimeError("broken")

    async def works(_: Any) -> AsyncIterator[Any]:
        yield {"n": 2}

    async def main() -> list[Any]:
        stream = Stream({"fails": fails, "works": works})
        for key, topic in (("f", "fails"), ("w", "works"), ("u", "unknown")):
            stream.subscribe(key, topic, {})
        events = stream.events()
        found = [await anext(events) for _ in range(6)]
        await events.aclose()  # type: ignore[attr-defined]
        return [json.loads(event[len(b"data: ") :]) for event in found[1:]]

    found = helpers.run(main())
    ends = {message["key"]: message.get("error") for message in found if message.get("end")}
    assert ends["f"] == "broken"
    assert ends["w"] is None
    assert "unknown topic" in ends["u"]


def test_silent_stream_has_heartbeats_and_is_not_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx_dashboard.stream.HEARTBEAT", 0.01)

    async def events() -> list[bytes]:
        stream = Stream({})
        found = stream.events()
        received = [await anext(found) for _ in range(3)]
        await found.aclose()  # type: ignore[attr-defined]
        return received

    first, *others = helpers.run(events())
    assert b'"stream"' in first
    assert others == [b": heartbeat\n\n"] * 2


def test_values_are_json_without_secrets_and_without_numbers_that_are_not_finite() -> None:
    values = {"nan": float("nan"), "inf": float("-inf"), "big": 1 << 60, "api_token": "abc", "x": 1}
    assert shown_values(values) == {
        "nan": "NaN",
        "inf": "-Infinity",
        "big": str(1 << 60),
        "api_token": "***",
        "x": 1,
    }
    assert len(shown_values({"t": "x" * 10_000})["t"]) < 400


@pytest.mark.parametrize("name", ["a.svg", "a.html", "a.xhtml", "a", "a.js", "a.xml", "a.pdf"])
def test_artifact_that_could_run_scripts_is_only_a_download(name: str) -> None:
    assert media_type(name, f"/x/{name}") == "application/octet-stream"


@pytest.mark.parametrize("modules", [MODULES, WORKER_MODULES])
def test_modules_of_a_script_define_different_names(modules: tuple[str, ...]) -> None:
    names: Counter[str] = Counter()
    for module in modules:
        text = (STATIC / f"{module}.js").read_text("utf-8")
        pattern = r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)"
        names.update(re.findall(pattern, text, re.M))
        assert not re.search(r"^import [^;]*$", text, re.M), f"{module}: an import needs one line"
    assert [name for name, count in names.items() if count > 1] == []
    assert "innerHTML" not in front_end().scripts[-1]


def test_data_of_an_exported_page_cannot_end_its_element() -> None:
    text = document({"odd": "</script><script>alert(1)</script><!--"})
    assert text.count("</script>") == 4
    assert "<!--" not in text.partition("<body>")[2]
