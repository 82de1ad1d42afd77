"""Tests of the signatures on upstream's pages of ``torchx.specs``.

The expected lines are copied from the reference pages, without types. Our functions may have
further parameters if these are optional.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import torchx_specs
from torchx_specs import file_linter, overlays
from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, StructuredOpts
from torchx_specs.trackers.api import TrackerBase
from torchx_specs.workspace import WorkspaceMixin

#: The signatures on the page specs-reference; specs-reference-older has no others.
REFERENCE = """
AppDef(name, roles=<factory>, metadata=<factory>)
Role(name, image, min_replicas=None, entrypoint='<MISSING>', args=<factory>, env=<factory>, \
num_replicas=1, max_retries=0, retry_policy=APPLICATION, resource=<factory>, port_map=<factory>, \
metadata=<factory>, mounts=<factory>, workspace=None, overrides=<factory>)
Role.pre_proc(self, scheduler, dryrun_info)
Resource(cpu, gpu, memMB, capabilities=<factory>, devices=<factory>, tags=<factory>)
Resource.copy(original, **capabilities)
Resource.get_resource_name(self)
Resource.is_fractional(self)
resource(cpu=None, gpu=None, memMB=None, h=None)
get_named_resources(res)
Workspace(projects)
Workspace.is_unmapped_single_project(self)
Workspace.merge_into(self, outdir)
macros.Values(img_root, app_id, replica_id, rank0_env='<MISSING>', base_img_root='DEPRECATED')
macros.Values.apply(self, role)
macros.Values.substitute(self, arg)
macros.Values.to_dict(self)
runopts()
runopts.add(self, cfg_key, type_, help, default=None, required=False)
runopts.cfg_from_json_repr(self, json_repr)
runopts.cfg_from_str(self, cfg_str)
runopts.get(self, name)
runopts.is_type(obj, tp)
runopts.resolve(self, cfg)
runopt(default, opt_type, is_required, help)
runopt.cast_to_type(self, value)
StructuredOpts.as_runopts()
StructuredOpts.from_cfg(cfg)
AppStatus(state, num_restarts=0, msg='', structured_error_msg='<NONE>', ui_url=None, \
roles=<factory>)
AppStatus.format(self, filter_roles=None)
AppStatus.raise_for_status(self)
AppDryRunInfo(request, fmt)
parse_app_handle(app_handle)
ParsedAppHandle(scheduler_backend, session_name, app_id)
parse_mounts(opts)
BindMount(src_path, dst_path, read_only=False)
VolumeMount(src, dst_path, read_only=False)
DeviceMount(src_path, dst_path, permissions='rwm')
overlays.DEL(key)
overlays.JOIN(key, *, on)
overlays.PUT(key)
overlays.apply_overlay(base, overlay, *, _resolve=True)
overlays.get_overlay(target, namespace, kind)
overlays.set_overlay(target, namespace, kind, overlay)
overlays.validate_overlay(overlay, *, blocklist=None, forbidden_keys=None, \
overlay_name='overlay', suggestion='')
file_linter.validate(path, component_function, validators=None)
file_linter.get_fn_docstring(fn)
file_linter.LinterMessage(name, description, line, char, severity='error')
"""

#: The methods that the plugin skeletons on the page quick-reference implement, and the classes
#: that these methods return.
SKELETONS = """
Scheduler(backend, session_name)
Scheduler._run_opts(self)
Scheduler._submit_dryrun(self, app, cfg)
Scheduler.schedule(self, dryrun_info)
Scheduler.describe(self, app_id)
Scheduler.list(self, cfg=None)
Scheduler._cancel_existing(self, app_id)
DescribeAppResponse(app_id='<NOT_SET>')
ListAppResponse(app_id, state, app_handle='<NOT_SET>', name='')
WorkspaceMixin.workspace_opts(self)
WorkspaceMixin.caching_build_workspace_and_update_role(self, role, cfg, build_cache)
TrackerBase.add_artifact(self, run_id, name, path, metadata=None)
TrackerBase.add_metadata(self, run_id, **kwargs)
TrackerBase.add_source(self, run_id, source_id, artifact_name=None)
TrackerBase.artifacts(self, run_id)
TrackerBase.metadata(self, run_id)
TrackerBase.sources(self, run_id, artifact_name=None)
TrackerBase.lineage(self, run_id)
TrackerBase.run_ids(self, **kwargs)
"""

ROOTS: dict[str, Any] = {
    "overlays": overlays,
    "file_linter": file_linter,
    "StructuredOpts": StructuredOpts,
    "Scheduler": Scheduler,
    "DescribeAppResponse": DescribeAppResponse,
    "ListAppResponse": ListAppResponse,
    "WorkspaceMixin": WorkspaceMixin,
    "TrackerBase": TrackerBase,
}


def found(path: str) -> Any:
    first, *rest = path.split(".")
    value = ROOTS[first] if first in ROOTS else getattr(torchx_specs, first)
    for name in rest:
        value = getattr(value, name)
    return value


def shown(default: object, owner: object, name: str) -> str:
    """Return the text of a default in the form of the pages."""
    if dataclasses.is_dataclass(owner):
        fields = {field.name: field for field in dataclasses.fields(owner)}
        if fields[name].default_factory is not dataclasses.MISSING:
            return "<factory>"
    return getattr(default, "name", None) or repr(default)


def parts_of(what: Callable[..., Any]) -> list[tuple[str, bool]]:
    """Return each parameter in the form of the pages, and whether the parameter is optional."""
    parts: list[tuple[str, bool]] = []
    for parameter in inspect.signature(what).parameters.values():
        kind, text = parameter.kind, parameter.name
        if kind == kind.KEYWORD_ONLY and ("*", True) not in parts:
            parts.append(("*", True))
        if kind == kind.VAR_KEYWORD:
            text = f"**{text}"
        optional = parameter.default is not parameter.empty
        if optional:
            text += f"={shown(parameter.default, what, parameter.name)}"
        parts.append((text, optional or kind == kind.VAR_KEYWORD))
    return parts


@pytest.mark.parametrize("line", (REFERENCE + SKELETONS).strip().replace("\n\n", "\n").splitlines())
def test_a_documented_signature_is_ours(line: str) -> None:
    path, _, rest = line.partition("(")
    documented = [part for part in rest.removesuffix(")").split(", ") if part]
    ours = parts_of(found(path))
    assert [part for part, _ in ours[: len(documented)]] == documented
    assert all(optional for _, optional in ours[len(documented) :])


def test_the_states_and_the_policies() -> None:
    states = [
        "UNSUBMITTED",
        "SUBMITTED",
        "PENDING",
        "RUNNING",
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
        "UNKNOWN",
    ]
    assert [(state.name, int(state)) for state in torchx_specs.AppState] == [
        (name, number) for number, name in enumerate(states)
    ]
    assert torchx_specs.ReplicaState is torchx_specs.AppState
    terminal = [s.name for s in torchx_specs.AppState if torchx_specs.is_terminal(s)]
    assert terminal == ["SUCCEEDED", "FAILED", "CANCELLED"]
    policies = {policy.name: policy.value for policy in torchx_specs.RetryPolicy}
    assert policies == {name: name for name in ("REPLICA", "APPLICATION", "ROLE")}


def test_the_macros_and_the_aliases() -> None:
    for name in ("img_root", "app_id", "replica_id", "rank0_env", "base_img_root"):
        assert getattr(torchx_specs.macros, name) == f"${{{name}}}"
    assert torchx_specs.AppHandle is str
    kinds = str | int | float | bool | list[str] | dict[str, str] | None
    assert torchx_specs.CfgVal == kinds


def test_abstract_methods_are_those_of_the_skeletons() -> None:
    assert Scheduler.__abstractmethods__ == {
        *("_submit_dryrun", "schedule", "describe", "list", "_cancel_existing")
    }
    assert TrackerBase.__abstractmethods__ == {
        *("add_artifact", "artifacts", "add_metadata", "metadata", "add_source", "sources"),
        *("lineage", "run_ids"),
    }
