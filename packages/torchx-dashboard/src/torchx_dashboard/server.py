"""The web application: pages, data, actions and the stream of events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from torchx_dashboard import cluster, sweeps
from torchx_dashboard.actions import act
from torchx_dashboard.job import details, status_messages
from torchx_dashboard.jobs import Jobs, Journal
from torchx_dashboard.logs import log_messages
from torchx_dashboard.page import document, front_end
from torchx_dashboard.runs import Trackers
from torchx_dashboard.security import Guard
from torchx_dashboard.stream import Stream, Topic, error_text, to_json
from torchx_kit.checks import on_this_machine
from torchx_specs.errors import (
    RequestError,
    TorchXError,
    UnknownAppException,
    UnknownSchedulerException,
)
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.schedulers.log_items import Stream as LogStream

if TYPE_CHECKING:
    from torchx_dashboard.runners import Runners
    from torchx_runner import AsyncRunner

    Handler = Callable[[Request], Awaitable[Response]]

# A request that changes something is small.
_MOST_BODY = 64 << 10
# The longest time to wait for a scheduler before the page gets an error, in seconds.
_PATIENCE = 20.0

# The HTTP status for an error: the first entry with its type, else 500.
_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((UnknownAppException,), 404),
    ((RequestError, UnknownSchedulerException, ValueError, KeyError), 400),
    ((TorchXError,), 502),
)


class Dashboard:
    """The state of the server, and the handlers of its requests.

    Args:
        runners: Query the schedulers, and carry out actions.
        allow_actions: Whether jobs may be cancelled, deleted and rerun.
    """

    def __init__(self, runners: Runners, *, allow_actions: bool = False) -> None:
        self.runners = runners
        self.allow_actions = allow_actions
        self.journal = Journal()
        self.jobs = Jobs(runners, self.journal)
        self.trackers = Trackers()
        self._streams: dict[str, Stream] = {}

        def _runner(parameters: Mapping[str, Any]) -> AsyncRunner:
            return runners.of_app(str(parameters["handle"]))

        self._topics: dict[str, Topic] = {
            "jobs": self.jobs.messages,
            "job": lambda p: status_messages(_runner(p), self.journal, p),
            "log": lambda p: log_messages(_runner(p), p),
            "runs": self._runs,
            "sweeps": sweeps.list_messages,
            "sweep": sweeps.sweep_messages,
        }

    async def _runs(self, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the runs of all trackers, with the durations of those jobs that are known."""
        if not self.jobs.rows():
            await self.jobs.query_used()
        jobs = self.jobs.rows()
        async for message in self.trackers.messages(parameters):
            for run in message.get("runs", ()):
                row = jobs.get(run["id"], {})
                if row.get("started") and row.get("ended"):
                    run["duration"] = row["ended"] - row["started"]
            yield message

    def end_streams(self) -> None:
        """End the streams of all browsers, so that the server can stop."""
        for stream in list(self._streams.values()):
            stream.close()

    def routes(self) -> list[Route]:
        """Return the routes of data and actions."""
        paths: dict[str, tuple[str, Handler]] = {
            "/api/info": ("GET", self.info),
            "/api/stream": ("POST", self.stream),
            "/api/subscribe": ("POST", self.subscribe),
            "/api/job": ("GET", self.job),
            "/api/log": ("GET", self.log),
            "/api/run": ("GET", self.run),
            "/api/artifact": ("GET", self.artifact),
            "/api/cluster": ("GET", self.cluster),
            "/api/action": ("POST", self.action),
        }
        # A cancelled submission would be deleted, so an action takes as long as it needs.
        return [
            Route(
                path,
                _with_errors(handler, None if handler == self.action else _PATIENCE),
                methods=[method],
            )
            for path, (method, handler) in paths.items()
        ]

    async def info(self, request: Request) -> Response:
        """Return what the page needs at its start, with the known jobs."""
        return _json(
            {
                "schedulers": self.runners.schedulers,
                "actions": self.allow_actions,
                "jobs": self.jobs.known(),
            }
        )

    async def stream(self, request: Request) -> Response:
        """Open the stream of events, with the subscriptions in the body."""
        body = await _body(request)
        stream = Stream(self._topics)
        for subscription in body.get("subscriptions", ()):
            _subscribe(stream, subscription)
        self._streams[stream.id] = stream

        async def events() -> AsyncIterator[bytes]:
            try:
                async with contextlib.aclosing(stream.events()) as sent:  # type: ignore[type-var]
                    async for event in sent:
                        yield event
            finally:
                stream.close()
                self._streams.pop(stream.id, None)

        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)

    async def subscribe(self, request: Request) -> Response:
        """Begin and end subscriptions of a stream; 410 if the stream has ended."""
        body = await _body(request)
        stream = self._streams.get(str(body.get("stream")))
        if stream is None:
            return _json({"error": "the stream has ended"}, 410)
        for key in body.get("remove", ()):
            stream.unsubscribe(str(key))
        for subscription in body.get("add", ()):
            _subscribe(stream, subscription)
        return _json({})

    async def job(self, request: Request) -> Response:
        """Return the definition of a job, and how it differs from the previous one."""
        handle = _parameter(request, "handle")
        return _json(await details(self.runners.of_app(handle), self.journal, handle))

    async def log(self, request: Request) -> Response:
        """Return the log of one replica as a download."""
        handle, role = _parameter(request, "handle"), _parameter(request, "role")
        stream = LogStream(request.query_params.get("stream", "combined"))
        replica = int(_parameter(request, "replica"))
        runner = self.runners.of_app(handle)
        if await runner.status(handle) is None:
            raise UnknownAppException(handle)
        lines = runner.log_lines(handle, role, replica, streams=stream)

        async def content() -> AsyncIterator[bytes]:
            async for line in lines:
                yield line.encode("utf-8", "replace")

        return StreamingResponse(content(), media_type="text/plain; charset=utf-8")

    async def run(self, request: Request) -> Response:
        """Return metrics, artifacts and sources of a run; with ``history``, only the metrics."""
        tracker, run_id = _parameter(request, "tracker"), _parameter(request, "id")
        only = "history" in request.query_params
        query = self.trackers.history if only else self.trackers.details
        return _json(await asyncio.to_thread(query, tracker, run_id))

    async def artifact(self, request: Request) -> Response:
        """Return the content of an artifact; only types without scripts are named."""
        names = [_parameter(request, name) for name in ("tracker", "id", "name")]
        file, media_type = await asyncio.to_thread(self.trackers.open_artifact, *names)
        with file:
            content = await asyncio.to_thread(file.read)
        headers = {"Content-Disposition": "attachment"}
        return Response(content, media_type=media_type, headers=headers)

    async def cluster(self, request: Request) -> Response:
        """Return the results of the checks, the length of each queue, and the GPUs."""
        rows, checks, gpus = await asyncio.gather(
            self.jobs.listed(), asyncio.to_thread(cluster.checks), self._gpus()
        )
        for check in checks:
            name = check["subject"]
            check["used"] = name not in self.runners.schedulers or self.jobs.is_used(name)
        queues = cluster.queues(rows.values(), self.journal.by_app())
        return _json({"checks": checks, "queues": queues, "gpus": gpus})

    async def _gpus(self) -> dict[str, dict[str, Any]]:
        """Return the GPUs of the schedulers in use, or why their number is unknown."""
        names = [name for name in self.runners.schedulers if self.jobs.is_used(name)]
        found = await asyncio.gather(*(cluster.gpus(self.runners.of(n), n) for n in names))
        return {name: data for name, data in zip(names, found, strict=True) if data}

    async def action(self, request: Request) -> Response:
        """Cancel, delete or rerun a job."""
        if not self.allow_actions:
            return _json({"error": "actions need 'torchx dashboard --allow-actions'"}, 403)
        body = await _body(request)
        done = await act(self.runners, self.journal, str(body.get("action")), body)
        self.jobs.poll_now(parse_app_handle(done["handle"]).scheduler_backend)
        return _json(done)


def make_app(
    dashboard: Dashboard, token: str, *, hosts: Collection[str] = (), prefix: str = ""
) -> Starlette:
    """Return the web application.

    Args:
        dashboard: The state of the server.
        token: The token that requests for data must contain.
        hosts: Further host names by which browsers may reach the server.
        prefix: The path below which a proxy that does not remove this path shows the page.
    """
    parts, text = front_end(), document()

    async def page(request: Request) -> Response:
        return Response(text, media_type="text/html")

    async def worker(request: Request) -> Response:
        return Response(parts.worker, media_type="text/javascript")

    inner = [*dashboard.routes(), Route("/worker.js", worker), Route("/", page)]
    prefix = prefix.strip("/")
    routes = [Mount(f"/{prefix}", routes=inner), *inner] if prefix else inner

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        query = asyncio.create_task(dashboard.jobs.query_used())
        yield
        query.cancel()
        await dashboard.runners.close()

    policy = parts.policy("connect-src 'self'; worker-src 'self' blob:; frame-ancestors 'none'")
    guard = Middleware(Guard, token=token, policy=policy, hosts=hosts)
    return Starlette(routes=routes, middleware=[guard], lifespan=lifespan)


def _with_errors(handler: Handler, patience: float | None) -> Handler:
    """Return a handler that answers errors as JSON.

    Args:
        handler: The handler.
        patience: How long to wait for a scheduler on an idle machine, in seconds; None means
            without a limit.
    """

    async def handle(request: Request) -> Response:
        seconds = None if patience is None else on_this_machine(patience)
        try:
            return await asyncio.wait_for(handler(request), seconds)
        except asyncio.TimeoutError:
            return _json({"error": f"no answer within {seconds:.3g} s"}, 504)
        except Exception as e:
            status = next((status for kinds, status in _STATUSES if isinstance(e, kinds)), 500)
            # A third party's plugin may raise anything, and the text may be empty.
            kind = f"{type(e).__name__}: " if status == 500 else ""
            return _json({"error": f"{kind}{error_text(e)}"}, status)

    return handle


def _json(data: Any, status: int = 200) -> Response:
    return Response(to_json(data), status, media_type="application/json")


def _parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise RequestError(f"the parameter '{name}' is missing")
    return value


async def _body(request: Request) -> Mapping[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _MOST_BODY:
            raise RequestError(f"the request has more than {_MOST_BODY >> 10} KB")
    body = json.loads(content or b"{}")
    if not isinstance(body, dict):
        raise RequestError("the body of the request is not an object")
    return body


def _subscribe(stream: Stream, subscription: Any) -> None:
    key, topic = str(subscription["key"]), str(subscription["topic"])
    stream.subscribe(key, topic, subscription.get("parameters") or {})
