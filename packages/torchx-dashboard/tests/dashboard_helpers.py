"""A scheduler in memory, and the web application with it, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from torchx_dashboard.runners import Runners
from torchx_dashboard.server import Dashboard, make_app
from torchx_runner import AsyncRunner, Runner
from torchx_specs import AppState, RoleStatus
from torchx_specs.model.status import ReplicaStatus
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs

TOKEN = "the-token"
ODD_NAME = "<script>alert(1)</script>\x1b[31m"


class MemoryLogs(Logs["MemoryScheduler"]):
    """Logs from a list of texts."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        return iter(self.scheduler.lines)


class MemoryScheduler(Scheduler[Mapping[str, Any]]):
    """A scheduler whose apps are in memory."""

    features = SchedulerFeatures(logs=True)

    def __init__(self, apps: dict[str, AppState], lines: list[str] | None = None) -> None:
        super().__init__("memory", "torchx")
        self.apps = apps
        self.lines = lines or []
        self.cancelled: list[str] = []
        self.on_list: Callable[[], object] = lambda: None

    @property
    def app_logs(self) -> MemoryLogs:
        return MemoryLogs(self)

    def schedule(self, dryrun_info: Any) -> str:
        raise NotImplementedError

    def _submit_dryrun(self, app: Any, cfg: Any) -> Any:
        raise NotImplementedError

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        if app_id not in self.apps:
            return None
        state = self.apps[app_id]
        replica = ReplicaStatus(0, state, "r", "host", reason="Priority: other jobs")
        return DescribeAppResponse(app_id, state, roles_statuses=[RoleStatus("r", [replica])])

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        self.on_list()
        return [
            ListAppResponse(app_id, state, name=ODD_NAME) for app_id, state in self.apps.items()
        ]

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)
        self.apps[app_id] = AppState.CANCELLED


def runners_of(*schedulers: MemoryScheduler) -> Runners:
    factories = {s.backend: lambda *_, s=s, **__: s for s in schedulers}
    return Runners(lambda: AsyncRunner(Runner("torchx", factories), threads=2))


@asynccontextmanager
async def client_of(
    *schedulers: MemoryScheduler, allow_actions: bool = False, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client of the web application, which runs in this event loop."""
    dashboard = Dashboard(runners_of(*schedulers), allow_actions=allow_actions)
    app = make_app(dashboard, TOKEN, **options)
    transport = httpx.ASGITransport(app=app)
    headers = {"X-TorchX-Token": TOKEN}
    base = "http://127.0.0.1:8000"
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
        yield client
    await dashboard.runners.close()


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)
