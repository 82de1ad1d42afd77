"""Constants and helpers of the command modules in older TorchX releases."""

from __future__ import annotations

import argparse

from torchx_cli.launch.run_request import TorchXRunArgs
from torchx_specs.options.run_options import CfgVal

HANDLE_HEADER = "APP HANDLE"
NAME_HEADER = "APP NAME"
STATUS_HEADER = "APP STATUS"

ID_FORMAT = "SCHEDULER_BACKEND://[SESSION_NAME]/APP_ID/[ROLE_NAME[/REPLICA_ID,...]]"

MISSING_COMPONENT_ERROR_MSG = (
    "missing component name, either provide it from the CLI or in .torchxconfig"
)
LOCAL_SCHEDULER_WARNING_MSG = "the scheduler `local` is gone, use `local_cwd` or `local_docker`"


def parse_list_arg(arg: str | None) -> list[str] | None:
    """Return the items of ``a,b``, or None for an empty text."""
    return [item.strip() for item in arg.split(",")] if arg else None


def torchx_run_args_from_argparse(
    args: argparse.Namespace,
    component_name: str,
    component_args: list[str],
    scheduler_cfg: dict[str, CfgVal],
) -> TorchXRunArgs:
    """Convert the arguments of ``torchx run``, parsed by argparse, to TorchXRunArgs."""
    return TorchXRunArgs(
        component_name=component_name,
        scheduler=args.scheduler,
        scheduler_args={},
        scheduler_cfg=scheduler_cfg,
        dryrun=args.dryrun,
        wait=args.wait,
        log=args.log,
        workspace=args.workspace,
        parent_run_id=args.parent_run_id,
        tee_logs=args.tee_logs,
        component_args={},
        component_args_str=component_args,
    )
