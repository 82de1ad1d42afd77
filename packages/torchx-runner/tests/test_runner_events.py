"""Tests of events: handlers, content, masked secrets, the session id."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx_runner import Runner, session_id
from torchx_runner.events import api as events
from torchx_runner.events.api import SourceType, TorchxEvent, log_event, record
from torchx_runner.events.handlers import get_logging_handler
from torchx_specs import AppDef, AppState, InvalidRunConfigException, Workspace
from torchx_specs.errors import RequestError
from torchx_specs.hookspecs import EventHandlerPlugin


class Listener(logging.Handler):
    """A handler that keeps its events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[TorchxEvent] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(TorchxEvent.deserialize(record.getMessage()))

    @property
    def apis(self) -> list[str]:
        return [event.api for event in self.events]


@pytest.fixture(autouse=True)
def _own_loggers() -> Iterator[None]:
    yield
    for destination in events._configured_from:
        log = logging.getLogger(f"torchx-events-{destination}")
        for handler in events._own_handlers.pop(destination, ()):
            log.removeHandler(handler)
        log.propagate = True  # caplog has a handler at each logger that does not propagate
    events._configured_from.clear()


@pytest.fixture
def listener(plugins: Any) -> Listener:
    handler = Listener()
    plugins.add("torchx_event_handlers", EventHandlerPlugin("null", lambda: handler))
    return handler


# -- the handlers that receive events


def test_event_without_a_handler_imports_nothing(
    runner: Runner, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchxEvent, "serialize", lambda self: pytest.fail("serialized"))
    runner.run(app, "fake", {"queue": "q"})
    with pytest.raises(InvalidRunConfigException):
        runner.run(app, "fake", {"nope": "q"})
    assert not events._has_listeners("null")


def test_handler_named_null_receives_all_events(
    runner: Runner, listener: Listener, app: AppDef, scheduler: Any
) -> None:
    handle = runner.run(app, "fake")
    assert listener.apis == ["dryrun", "schedule", "run"]
    listener.events.clear()
    runner.status(handle)
    runner.describe(handle)
    runner.describe_native(handle)
    runner.list("fake")
    runner.log_lines(handle, "main")
    runner.build_workspace(app, "fake")
    runner.cancel(handle)
    scheduler.states["app1"] = AppState.SUCCEEDED
    runner.wait(handle)
    runner.delete(handle)
    assert listener.apis == [
        *("status", "describe", "describe_native", "list"),
        *("log_lines", "build_workspace", "cancel", "status", "wait", "delete"),
    ]


def test_event_of_run_component_names_its_app(
    runner: Runner, listener: Listener, cwd: Path
) -> None:
    (cwd / "comp.py").write_text(
        "from torchx_specs import AppDef, Resource, Role\n"
        "def f() -> AppDef:\n"
        "    role = Role('r', 'img', entrypoint='e', resource=Resource(1, 0, 1))\n"
        "    return AppDef('n', [role], {'k': 'v'})\n"
    )
    runner.run_component("comp.py:f", [], "fake", workspace="/proj")
    assert listener.apis == ["dryrun", "schedule", "run_component"]
    event = listener.events[-1]
    assert (event.scheduler, event.app_id, event.app_image, event.app_metadata) == (
        "fake",
        "app1",
        "img",
        {"k": "v"},
    )
    assert event.workspace == "/proj"


def test_variable_names_a_file(
    runner: Runner, app: AppDef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("TORCHX_EVENTS", f"jsonl:{path}")
    runner.run(app, "fake")
    runner.status("fake://test/app1")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["api"] for line in lines] == ["dryrun", "schedule", "run", "status"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    other = tmp_path / "other.jsonl"
    monkeypatch.setenv("TORCHX_EVENTS", f"jsonl:{other}")
    runner.status("fake://test/app1")
    monkeypatch.delenv("TORCHX_EVENTS")
    runner.status("fake://test/app1")
    assert (len(path.read_text().splitlines()), len(other.read_text().splitlines())) == (4, 1)


def test_variable_names_a_handler(
    runner: Runner, plugins: Any, app: AppDef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Listener()
    plugins.add("torchx_event_handlers", EventHandlerPlugin("acme", lambda: handler))
    runner.dryrun(app, "fake")
    assert handler.apis == []
    monkeypatch.setenv("TORCHX_EVENTS", "acme")
    runner.dryrun(app, "fake")
    assert handler.apis == ["dryrun"]


def test_a_handler_is_created_once_for_all_events(
    runner: Runner, plugins: Any, app: AppDef
) -> None:
    created: list[Listener] = []

    def create() -> Listener:
        created.append(Listener())
        return created[-1]

    plugins.add("torchx_event_handlers", EventHandlerPlugin("null", create))
    for _ in range(3):
        runner.dryrun(app, "fake")
    [handler] = created
    assert handler.apis == ["dryrun"] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("jsonl:/no/such/folder/x", "No such file"),
        ("consle", "unknown event destination 'consle'; did you mean 'console'?"),
    ],
)
def test_unusable_destination_does_not_end_the_call(
    runner: Runner,
    app: AppDef,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    value: str,
    text: str,
) -> None:
    monkeypatch.setenv("TORCHX_EVENTS", value)
    assert runner.run(app, "fake") == "fake://test/app1"
    assert caplog.text.count(text) == 1


def raising(*args: Any) -> Any:
    raise RuntimeError("handler is broken")


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raising(record)


@pytest.mark.parametrize("factory", [raising, Raising, dict, "no.such:module"])
def test_failing_handler_does_not_end_the_call(
    runner: Runner,
    plugins: Any,
    app: AppDef,
    caplog: pytest.LogCaptureFixture,
    factory: Any,
) -> None:
    plugins.add("torchx_event_handlers", EventHandlerPlugin("null", factory))
    assert runner.run(app, "fake") == "fake://test/app1"
    assert len([r for r in caplog.records if r.name == "torchx_runner.events.api"]) >= 1


def test_conflicting_handlers_are_a_warning(
    runner: Runner, plugins: Any, app: AppDef, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        plugin = EventHandlerPlugin("null", Listener, summary=name)
        plugins.add("torchx_event_handlers", plugin, distribution=name)
    runner.dryrun(app, "fake")
    assert "event handler 'null' is given by" in caplog.text


def test_handler_added_to_the_logger_receives_events(runner: Runner, app: AppDef) -> None:
    handler = Listener()
    log = logging.getLogger("torchx-events-null")
    log.addHandler(handler)
    try:
        runner.dryrun(app, "fake")
    finally:
        log.removeHandler(handler)
    assert handler.apis == ["dryrun"]


def test_record_to_a_destination(plugins: Any) -> None:
    handler = Listener()
    plugins.add("torchx_event_handlers", EventHandlerPlugin("acme", lambda: handler))
    record(TorchxEvent("s", "fake", "mine"), "acme")
    assert handler.apis == ["mine"]
    with pytest.raises(KeyError, match="did you mean 'acme'"):
        record(TorchxEvent("s", "fake", "mine"), "acmee")


def test_events_do_not_reach_the_root_logger(plugins: Any) -> None:
    handler, of_the_program = Listener(), Listener()
    plugins.add("torchx_event_handlers", EventHandlerPlugin("null", lambda: handler))
    logging.getLogger().addHandler(of_the_program)
    try:
        record(TorchxEvent("s", "fake", "mine"))
    finally:
        logging.getLogger().removeHandler(of_the_program)
    assert handler.apis == ["mine"]
    assert of_the_program.apis == []


def test_handlers_without_plugin() -> None:
    assert isinstance(get_logging_handler("console"), logging.StreamHandler)
    assert isinstance(get_logging_handler(), logging.NullHandler)


# -- the content of an event


def test_event_of_a_call(listener: Listener) -> None:
    with log_event("mine", "fake", "a1", "img", {"k": "v"}, '{"a": 1}', "/proj") as ctx:
        ctx._torchx_event.app_id = "a2"
    [event] = listener.events
    assert (event.api, event.scheduler, event.app_id, event.app_image) == (
        "mine",
        "fake",
        "a2",
        "img",
    )
    assert (event.app_metadata, event.runcfg, event.workspace) == ({"k": "v"}, '{"a": 1}', "/proj")
    assert event.session == session_id.get_session_id_or_create_new()
    assert event.source == SourceType.UNKNOWN
    assert event.cpu_time_usec is not None
    assert event.wall_time_usec is not None
    assert event.start_epoch_time_usec is not None
    assert event.start_epoch_time_usec > 1_600_000_000_000_000
    assert event.raw_exception is event.exception_type is None


def test_event_of_a_failed_call(listener: Listener) -> None:
    with pytest.raises(ValueError, match="boo"), log_event("mine"):
        raise ValueError("boo")
    [event] = listener.events
    assert (event.exception_type, event.exception_message) == ("ValueError", "boo")
    assert event.raw_exception is not None
    assert event.raw_exception.endswith("ValueError: boo\n")
    place = json.loads(event.exception_source_location or "")
    assert place["filename"] == __file__
    assert set(place) == {"filename", "lineno", "name"}


def test_event_has_the_workspace_as_text(runner: Runner, listener: Listener, app: AppDef) -> None:
    runner.dryrun(app, "fake", workspace=Workspace({"/a": "b", "/c": ""}))
    assert listener.events[0].workspace == "/a:b;/c"


def test_serialized_event_is_deserialized() -> None:
    event = TorchxEvent("s", "fake", "api", app_metadata={"a": "b"}, source=SourceType.EXTERNAL)
    assert TorchxEvent.deserialize(event.serialize()) == event
    assert TorchxEvent.deserialize(event) is event
    assert str(event) == event.serialize()
    assert json.loads(event.serialize())["source"] == "EXTERNAL"
    odd = event.serialize().replace("EXTERNAL", "elsewhere")
    assert TorchxEvent.deserialize(odd).source == SourceType.UNKNOWN
    with pytest.raises(TypeError, match="got int"):
        TorchxEvent.deserialize(1)  # type: ignore[arg-type]


# -- secrets and other values of options


@pytest.mark.parametrize("as_text", [False, True])
def test_secret_options_are_masked(listener: Listener, as_text: bool) -> None:
    cfg = {
        "queue": "q",
        "api_token": "hunter22",
        "env": {"DB_PASSWORD": "letmein!", "A": "b"},
        "url": "https://user:hunter22@host/x",
        "keys": ["a"],
        "password": None,
    }
    error = RuntimeError("login with hunter22 and letmein! at ftp://u:pw@host failed")
    with (
        pytest.raises(RuntimeError),
        log_event("mine", runcfg=json.dumps(cfg) if as_text else cfg),
    ):
        raise error
    [event] = listener.events
    assert json.loads(event.runcfg or "") == {
        "queue": "q",
        "api_token": "***",
        "env": {"DB_PASSWORD": "***", "A": "b"},
        "url": "https://user:***@host/x",
        "keys": ["a"],
        "password": None,
    }
    text = event.serialize()
    assert [s for s in ("hunter22", "letmein!", ":pw@") if s in text] == []
    assert "login with *** and *** at ftp://u:***@host failed" in text


def test_secret_options_are_masked_in_errors(
    runner: Runner, listener: Listener, app: AppDef
) -> None:
    with pytest.raises(InvalidRunConfigException) as error:
        runner.dryrun(app, "fake", {"nope_token": "s3cret-value"})
    assert "s3cret-value" not in str(error.value)
    assert "s3cret-value" not in listener.events[0].serialize()


def test_secrets_in_metadata_and_image_are_masked(
    runner: Runner, listener: Listener, app: AppDef
) -> None:
    app.metadata = {"hf_token": "s3cret", "team": "a", "repo": "https://s3cret@host/x"}
    app.roles[0].image = "https://s3cret@registry/image"
    runner.dryrun(app, "fake", {"queue": "q"})
    [event, *_] = [event for event in listener.events if event.app_metadata]
    assert event.app_metadata == {
        "hf_token": "***",
        "team": "a",
        "repo": "https://***@host/x",
    }
    assert event.app_image == "https://***@registry/image"
    assert "s3cret" not in event.serialize()


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"HF_TOKEN": b"s3cret"}},
        {"env": {"X": b"x", "HF_TOKEN": ["s3cret"]}},
        {"env": [("HF_TOKEN", "s3cret")]},
        {"args": ["--hf-token", b"s3cret"]},
        {"args": ("--hf-token", {"s3cret"})},
    ],
    ids=str,
)
def test_secrets_of_wrong_types_are_masked_in_errors(
    runner: Runner, listener: Listener, app: AppDef, fields: dict[str, Any]
) -> None:
    for name, value in fields.items():
        setattr(app.roles[0], name, value)
    with pytest.raises(RequestError) as error:
        runner.dryrun(app, "fake", {"queue": "q"})
    assert "must be a" in str(error.value)
    assert "s3cret" not in str(error.value)
    assert [event for event in listener.events if "s3cret" in event.serialize()] == []


def test_options_without_a_json_type_are_converted(
    runner: Runner, listener: Listener, app: AppDef
) -> None:
    odd: Any = {"queue": "q", "job_tags": None, "priority": None}
    with log_event("mine", runcfg={**odd, "x": Path("/p"), 3: {1}}):  # type: ignore[dict-item]
        pass
    assert json.loads(listener.events[0].runcfg or "")["x"] == "/p"


def test_failing_details_do_not_end_the_call(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    with log_event("mine", runcfg={("a", "tuple"): 1}):  # type: ignore[dict-item]
        pass
    assert listener.apis == ["mine"]
    assert "event of 'mine' is incomplete" in caplog.text


def test_options_that_are_not_json_are_kept_as_text(listener: Listener) -> None:
    with log_event("mine", runcfg="queue=q"):
        pass
    assert listener.events[0].runcfg == "queue=q"


# -- the identifier of the session


def test_session_id_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    assert session_id.get_torchx_session_id() is None
    made = session_id.get_session_id_or_create_new()
    import uuid

    assert uuid.UUID(made).version == 4
    assert uuid.UUID(made).variant == uuid.RFC_4122
    monkeypatch.setenv("TORCHX_INTERNAL_SESSION_ID", "later")
    assert session_id.get_session_id_or_create_new() == made
    assert session_id.get_torchx_session_id() == made


def test_session_id_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_INTERNAL_SESSION_ID", "given")
    assert session_id.get_torchx_session_id() == "given"
    assert session_id.get_session_id_or_create_new() == "given"
