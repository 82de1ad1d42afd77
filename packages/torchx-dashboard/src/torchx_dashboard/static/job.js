// The page of one job: status and replicas, logs, definition, differences, events.
import { h, replace, whenReleased, badge, clockTime, copy, duration, empty, visible, toast } from "./dom.js";
import { get, subscribe, exported } from "./net.js";
import { LogView } from "./logview.js";
import { jobLink } from "./jobs.js";
import { cancelJobs, deleteJobs, rerunJob } from "./actions.js";

const TABS = [["overview", "Overview"], ["logs", "Logs"], ["definition", "Definition"], ["events", "Events"]];
const MOST_REPLICAS = 300;

export function showJob(container, info, [handle, chosen]) {
  const state = { status: undefined, details: null, tab: TABS.some(([id]) => id === chosen) ? chosen : "overview" };
  let view = null;
  let shownTab = "";
  let shownParts = [];
  const head = h("div", { class: "job-head" });
  const content = h("div", { class: "job-content", role: "tabpanel", id: "tabpanel" });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the job", onkeydown: (e) => tabKey(e) },
    TABS.map(([id, title]) => h("button", { role: "tab", id: `tab-${id}`, "aria-controls": "tabpanel", onclick: () => select(id) }, title)));
  replace(container, head, tabs, content);

  const select = (tab) => {
    state.tab = tab;
    history.replaceState(null, "", `#/job/${encodeURIComponent(handle)}${tab === "overview" ? "" : `/${tab}`}`);
    draw();
    tabs.querySelector('[aria-selected="true"]').focus();
  };
  const tabKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([id]) => id === state.tab);
    select(TABS[(at + step + TABS.length) % TABS.length][0]);
    event.preventDefault();
  };
  const replicas = () => (state.status?.roles || []).flatMap((role) => role.replicas.map((r) => `${role.role}/${r.id}`));

  const draw = () => {
    drawHead(head, info, handle, state);
    for (const tab of tabs.children) {
      const isShown = tab.id === `tab-${state.tab}`;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
    }
    tabs.hidden = state.status === null && !state.details;
    content.setAttribute("aria-labelledby", `tab-${state.tab}`);
    if (state.tab === "logs") return drawLogs();
    closeView();
    // A definition does not depend on the status, so a live update keeps its scroll position.
    const key = [state.tab, state.details, state.tab === "definition" ? null : state.status];
    if (shownTab === state.tab && key.every((part, i) => part === shownParts[i])) return content;
    shownTab = state.tab;
    shownParts = key;
    const parts = { overview: () => overview(state, select), definition: () => definition(state), events: () => events(state) };
    return replace(content, parts[state.tab]());
  };
  const closeView = () => { view?.close(); view = null; };
  const drawLogs = () => {
    if (view && shownTab === "logs") return;
    shownTab = "logs";
    const names = replicas();
    if (state.details && !state.details.logs) { replace(content, empty("This scheduler has no logs.")); return; }
    if (!names.length || !state.details) {
      shownTab = "";
      replace(content, empty(state.status === null ? "The job does not exist." : "The job has no replicas yet.", "The logs appear here when it starts."));
      return;
    }
    const failure = state.status.first_failure;
    const first = failure ? `${failure.role}/${failure.replica}` : names[0];
    view = new LogView(handle, { replicas: names, streams: state.details.streams, initial: names.length <= 8 ? names : [first] });
    replace(content, view.element);
  };

  const redrawHead = () => drawHead(head, info, handle, state);
  draw();
  const stop = subscribe("job", () => ({ handle }), {
    message: (status) => { state.status = status; state.problem = ""; whenReleased(draw); },
    error: (text) => { state.problem = text; whenReleased(draw); },
  });
  get("api/job", { handle }).then((details) => { state.details = details; draw(); }, (error) => { state.problem = error.message; draw(); });
  const timer = setInterval(() => { if (state.status?.state === "RUNNING") whenReleased(redrawHead); }, 1000);
  return () => { stop(); closeView(); clearInterval(timer); };
}

function drawHead(head, info, handle, { status, details, problem }) {
  const name = status?.name || details?.submission?.name || handle.split("/").at(-1);
  const ended = status?.ended || (status?.state === "RUNNING" ? Date.now() : null);
  const row = { handle };
  const back = () => { location.hash = "#/jobs"; };
  const rerun = async () => {
    const made = await rerunJob(row, details?.definition);
    if (made) location.hash = `#/job/${encodeURIComponent(made)}`;
  };
  const isOver = !status || ["SUCCEEDED", "FAILED", "CANCELLED"].includes(status.state);
  const buttons = info.actions && !exported && status !== null && h("span", { class: "group actions" },
    h("button", { disabled: isOver, onclick: () => cancelJobs([row]) }, "Cancel…"),
    h("button", { disabled: !details?.submission?.can_rerun, onclick: rerun }, "Run again…"),
    h("button", { disabled: !status, onclick: async () => (await deleteJobs([row])) && back() }, "Delete…"));
  replace(head,
    h("p", { class: "crumbs" }, h("a", { href: "#/jobs" }, "Jobs"), " / ", h("span", { class: "mono clip" }, visible(handle))),
    h("div", { class: "title" }, h("h1", {}, visible(name)), status ? badge(status.state) : null,
      status?.started ? h("span", { class: "muted" }, duration(ended ? ended - status.started : NaN)) : null,
      h("span", { class: "spacer" }), buttons),
    status === null ? h("div", { class: "problem error" }, "The scheduler does not know this job: it was deleted, or its record has expired.") : null,
    problem && status !== null ? h("div", { class: "problem error" }, visible(problem)) : null,
    status?.pending ? h("div", { class: "problem silent" }, h("strong", {}, "Waiting: "), visible(status.pending)) : null);
}

// Many schedulers give the exit code as the reason; it is shown once.
function reasonOf(replica) {
  return replica.reason === `exit code ${replica.exit_code}` ? "" : replica.reason || "";
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function command(text) {
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, visible(text)), h("button", { onclick: () => copy(text) }, "Copy"));
}

function overview({ status, details }, select) {
  if (status === undefined) return empty("Loading…");
  if (status === null) return details ? h("div", {}, submission(details)) : "";
  const failure = status.first_failure;
  const restarts = Math.max(0, status.num_restarts || 0);
  return h("div", { class: "columns" },
    h("section", {}, 
      failure ? h("div", { class: "failure" }, h("h2", {}, "First failure"),
        h("p", {}, h("strong", {}, visible(`${failure.role}/${failure.replica}`)), failure.node ? ` on ${visible(failure.node)}` : "", failure.exit_code === null ? "" : `, exit code ${failure.exit_code}`, reasonOf(failure) ? `: ${visible(reasonOf(failure))}` : ""),
        failure.message ? h("pre", { tabindex: "0" }, visible(failure.message)) : null,
        h("button", { onclick: () => select("logs") }, "Show its log")) : null,
      h("h2", {}, "Replicas"), replicaTables(status)),
    h("section", {},
      h("h2", {}, "Times"),
      facts([["Submitted", clockTime(status.submitted)], ["Started", clockTime(status.started)], ["Ended", clockTime(status.ended)],
        ["Waited", status.started && status.submitted ? duration(status.started - status.submitted) : ""],
        ["Attempts", String(restarts + 1)],
        ["Scheduler's page", status.ui_url && /^https?:/.test(status.ui_url) ? h("a", { href: status.ui_url, rel: "noreferrer", target: "_blank" }, visible(status.ui_url)) : visible(status.ui_url || "")]]),
      details ? submission(details) : null));
}

function submission(details) {
  const found = details.submission;
  if (!found) return h("p", { class: "muted" }, "You did not submit this job from this machine, so its command is unknown.");
  return h("div", {},
    h("h2", {}, "Run it again"), command(details.rerun),
    h("h2", {}, "Submitted by"), command(found.command),
    facts([["Directory", visible(found.folder)], ["Commit", h("span", { class: "mono" }, visible((found.git_commit || "").slice(0, 12)))].map((x) => x),
      ["Options", Object.entries(found.cfg || {}).map(([key, value]) => h("div", { class: "mono" }, visible(`${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)))]].filter(([, value]) => !(Array.isArray(value) && !value.length) && (value.textContent ?? value) !== "")),
    details.earlier.length ? h("div", {}, h("h2", {}, "Earlier runs"), h("ul", { class: "plain" }, details.earlier.map((other) => h("li", {}, jobLink(other.handle, other.handle.split("/").at(-1)), " ", h("span", { class: "muted" }, clockTime(other.time)))))) : null);
}

function replicaTables(status) {
  if (!status.roles.length) return empty("The job has no replicas yet.");
  return status.roles.map((role) => {
    const shown = role.replicas.slice(0, MOST_REPLICAS);
    const columns = [["Replica", (r) => String(r.id)], ["State", (r) => badge(r.state_name)], ["Node", (r) => visible(r.node || "")], ["Exit code", (r) => (r.exit_code === null ? "" : String(r.exit_code))], ["Restarts", (r) => (r.restarts ? String(r.restarts) : "")],
      ["Duration", (r) => duration(r.started ? (r.ended || (r.state_name === "RUNNING" ? Date.now() : NaN)) - r.started : NaN)], ["Reason", (r) => visible(reasonOf(r))]];
    const used = columns.filter(([title, cell], i) => i < 2 || shown.some((r) => cell(r)));
    return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Replicas of ${role.role}` }, h("table", {},
      h("caption", {}, h("strong", {}, visible(role.role)), h("span", { class: "muted" }, ` ${role.replicas.length} replica${role.replicas.length === 1 ? "" : "s"}`)),
      h("thead", {}, h("tr", {}, used.map(([title]) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, shown.map((r) => h("tr", {}, used.map(([, cell]) => h("td", {}, cell(r))))))),
      role.replicas.length > shown.length ? h("p", { class: "muted" }, `and ${role.replicas.length - shown.length} more`) : null);
  });
}

function definition({ details }) {
  if (!details) return empty("Loading…");
  const text = details.definition ? JSON.stringify(details.definition, null, 2) : "";
  return h("div", { class: "columns" },
    h("section", {}, h("h2", {}, "Definition"), text ? h("pre", { class: "document", tabindex: "0" }, visible(text)) : empty("The scheduler does not keep the definition.")),
    h("section", {}, h("h2", {}, "Changed since the previous run"), differences(details)));
}

function differences(details) {
  if (!details.previous) return h("p", { class: "muted" }, "The journal has no earlier run of this name.");
  const cell = (value, kind) => h("td", { class: `mono ${kind}` }, value === null ? "(absent)" : visible(typeof value === "string" ? value : JSON.stringify(value)));
  return h("div", {}, h("p", { class: "muted" }, "Compared with ", jobLink(details.previous, details.previous.split("/").at(-1))),
    details.differences.length ? h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Differences" }, h("table", {},
      h("thead", {}, h("tr", {}, ["Field", "Before", "Now"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, details.differences.map((d) => h("tr", {}, h("td", { class: "mono" }, visible(d.path)), cell(d.before, "before"), cell(d.after, "after")))))) : h("p", {}, "Nothing has changed."));
}

function events({ status }) {
  if (!status) return empty("Loading…");
  const found = [];
  const add = (time, text) => time && found.push([time, text]);
  add(status.submitted, "The job was submitted");
  add(status.ended, `The job ended: ${status.state}`);
  const many = status.roles.reduce((sum, role) => sum + role.replicas.length, 0) > 200;
  for (const role of status.roles) {
    for (const r of role.replicas) {
      if (many && r.state_name === "SUCCEEDED") continue;
      const restarts = r.restarts ? ` (restart ${r.restarts})` : "";
      add(r.started, `${role.role}/${r.id} started${r.node ? ` on ${r.node}` : ""}${restarts}`);
      add(r.ended, `${role.role}/${r.id} ended: ${r.state_name}${r.exit_code === null ? "" : `, exit code ${r.exit_code}`}${reasonOf(r) ? `, ${reasonOf(r)}` : ""}`);
    }
  }
  if (!found.length) return empty("The scheduler reports no times.");
  found.sort((a, b) => a[0] - b[0]);
  return h("ol", { class: "events" }, found.map(([time, text]) => h("li", {}, h("time", { class: "mono muted" }, clockTime(time)), h("span", {}, visible(text)))));
}
