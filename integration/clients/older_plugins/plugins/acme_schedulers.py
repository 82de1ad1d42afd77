"""Schedulers for upstream's release 0.7.0: options are a dict, ``_validate`` has two parameters."""

from typing import Dict, Iterable, List, Mapping, Optional

from torchx.schedulers.api import AppDryRunInfo, DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDef, AppState, CfgVal, ReplicaStatus, Role, RoleStatus, runopts
from torchx.workspace.api import WorkspaceMixin


class AcmeScheduler(Scheduler[Mapping[str, CfgVal]]):
    jobs: Dict[str, AppDef] = {}

    def __init__(self, session_name: str, pool: str = "none", **kwargs: object) -> None:
        super().__init__("acme", session_name)
        self.pool = pool

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, default="main", help="the queue of the job")
        opts.add("labels", type_=List[str], default=None, help="the labels of the job")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[str]:
        assert type(cfg) is dict, type(cfg)
        lines = [f"pool={self.pool} queue={cfg['queue']} labels={cfg.get('labels')}"]
        lines += [f"{r.name}: {r.image} {r.entrypoint} {' '.join(r.args)}" for r in app.roles]
        return AppDryRunInfo("\n".join(lines), str)

    def _validate(self, app: AppDef, scheduler: str) -> None:
        if any(role.num_replicas > 4 for role in app.roles):
            raise ValueError(f"{scheduler}: more than four replicas")

    def schedule(self, dryrun_info: AppDryRunInfo[str]) -> str:
        app_id = f"job-{len(self.jobs) + 1}"
        self.jobs[app_id] = dryrun_info._app
        return app_id

    def describe(self, app_id: str) -> Optional[DescribeAppResponse]:
        if app_id not in self.jobs:
            return None
        roles = self.jobs[app_id].roles
        return DescribeAppResponse(
            app_id=app_id,
            state=AppState.SUCCEEDED,
            roles=roles,
            roles_statuses=[
                RoleStatus(r.name, [ReplicaStatus(0, AppState.SUCCEEDED, r.name, "host")])
                for r in roles
            ],
        )

    def list(self) -> List[ListAppResponse]:
        return [ListAppResponse(app_id="job-0", state=AppState.RUNNING)]

    def _cancel_existing(self, app_id: str) -> None:
        del self.jobs[app_id]

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: Optional[str] = None,
        since: object = None,
        until: object = None,
        should_tail: bool = False,
        streams: object = None,
    ) -> Iterable[str]:
        return [f"line of {role_name}/{k} of {app_id}\n"]


class WorkspaceScheduler(WorkspaceMixin[None], AcmeScheduler):
    """A scheduler that builds workspaces in the dry run, by the method that 0.7.0 called."""

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("copy_to", type_=str, default=None, help="the destination of workspaces")
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        role.image = f"{workspace}@{cfg['copy_to']}"


def create_scheduler(session_name: str, **kwargs: object) -> AcmeScheduler:
    return AcmeScheduler(session_name, **kwargs)


def create_strict(session_name: str, pool: str = "strict") -> AcmeScheduler:
    return AcmeScheduler(session_name, pool)


def create_with_workspace(session_name: str, **kwargs: object) -> WorkspaceScheduler:
    return WorkspaceScheduler(session_name, **kwargs)


def create_none() -> AcmeScheduler:
    return AcmeScheduler("no session")
