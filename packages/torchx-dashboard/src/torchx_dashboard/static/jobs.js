// The page of all jobs.
import { h, replace, ago, badge, clockTime, duration, empty, visible } from "./dom.js";
import { subscribe, exported } from "./net.js";
import { Table } from "./table.js";
import { actionButtons } from "./actions.js";

const STATES = ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"];
// The filter stays when the user comes back from a job.
const jobFilter = { text: "", state: "", scheduler: "", mine: false };
// The rows are shown at once when the user comes back, and replaced by the next message.
const jobRows = new Map();

export function jobLink(handle, text) {
  return h("a", { href: `#/job/${encodeURIComponent(handle)}`, tabindex: "-1", class: "clip", title: visible(handle) }, visible(text));
}

export function ran(row) {
  if (!row.started) return null;
  const end = row.ended || (row.state === "RUNNING" ? Date.now() : null);
  return end === null ? null : end - row.started;
}

const JOB_COLUMNS = [
  { id: "name", title: "Name", value: (r) => r.name || r.id, cell: (r) => jobLink(r.handle, r.name || r.id), width: "minmax(110px, 2fr)" },
  { id: "state", title: "State", value: (r) => r.state, cell: (r) => badge(r.state), width: "108px" },
  { id: "reason", title: "Reason", value: (r) => r.reason, cell: (r) => h("span", { class: "clip muted", title: visible(r.reason) }, visible(r.reason || (r.exit_code ? `exit code ${r.exit_code}` : ""))), width: "minmax(110px, 2fr)", from: 760 },
  { id: "scheduler", title: "Scheduler", value: (r) => r.scheduler, cell: (r) => h("span", { class: "clip" }, visible(r.scheduler)), width: "minmax(90px, 130px)", from: 560 },
  { id: "id", title: "Id", value: (r) => r.id, cell: (r) => h("span", { class: "clip mono muted", title: visible(r.handle) }, visible(r.id)), width: "minmax(110px, 1.5fr)", from: 980 },
  { id: "began", title: "Submitted", value: (r) => r.began || null, cell: (r) => h("time", { title: clockTime(r.began) }, ago(r.began)), width: "112px", numeric: true, from: 440 },
  { id: "duration", title: "Duration", value: ran, cell: (r) => duration(ran(r)), width: "112px", numeric: true, from: 480 },
];

export function showJobs(container, info) {
  const rows = jobRows;
  let loaded = rows.size > 0;
  let isOld = false; // whether the next message replaces all rows
  const field = (tag, properties, ...rest) => h(tag, { ...properties, oninput: (e) => { jobFilter[e.target.name] = e.target.type === "checkbox" ? e.target.checked : e.target.value; update(); } }, ...rest);
  const options = (values, all) => [h("option", { value: "" }, all), ...values.map((value) => h("option", { value }, visible(value)))];
  const search = field("input", { type: "search", name: "text", placeholder: "Filter by name, id or reason", "aria-label": "Filter by name, id or reason", spellcheck: false });
  const state = field("select", { name: "state", "aria-label": "State" }, options(STATES, "All states"));
  const scheduler = field("select", { name: "scheduler", "aria-label": "Scheduler" }, options(info.schedulers, "All schedulers"));
  const mine = field("input", { type: "checkbox", name: "mine" });
  search.value = jobFilter.text;
  state.value = jobFilter.state;
  scheduler.value = jobFilter.scheduler;
  mine.checked = jobFilter.mine;
  const count = h("span", { class: "muted count", role: "status" });
  const problems = h("div", { class: "problems", role: "status" });
  const unused = h("details", { class: "muted unused", hidden: true }, h("summary", {}), h("ul", {}));
  const table = new Table({
    columns: JOB_COLUMNS, label: "Jobs", key: (row) => row.handle, sort: "began", descending: true,
    open: (row) => { location.hash = `#/job/${encodeURIComponent(row.handle)}`; },
    selectable: info.actions, none: empty("Loading the jobs…"),
  });
  const actions = info.actions ? actionButtons(() => [...table.selected].map((handle) => rows.get(handle)).filter(Boolean), () => { table.selected.clear(); table.draw(); }) : null;
  if (actions) table.onselect = () => actions.update();
  const update = () => {
    const words = jobFilter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...rows.values()].filter((row) =>
      (!jobFilter.state || row.state === jobFilter.state || (jobFilter.state === "PENDING" && row.state === "SUBMITTED"))
      && (!jobFilter.scheduler || row.scheduler === jobFilter.scheduler)
      && (!jobFilter.mine || row.mine)
      && words.every((word) => (row.text ??= `${row.name} ${row.handle} ${row.reason}`.toLowerCase()).includes(word)));
    const all = rows.size.toLocaleString("en");
    count.textContent = loaded ? (found.length === rows.size ? `${all} jobs` : `${found.length.toLocaleString("en")} of ${all} jobs`) : "";
    const none = !loaded ? empty("Loading the jobs…")
      : rows.size ? empty("No job matches the filter.")
      : empty("There are no jobs yet.", "Submit one, and it appears here: torchx run utils.echo --msg hello");
    table.setRows(found, none);
  };
  replace(container,
    h("h1", {}, "Jobs"),
    h("div", { class: "toolbar" }, search, state, scheduler, exported ? null : h("label", {}, mine, "mine"), actions?.element, count),
    problems, table.element, unused);
  const received = (data) => {
    if (isOld) { rows.clear(); loaded = isOld = false; }
    for (const row of data.rows) rows.set(row.handle, row);
    for (const handle of data.removed) rows.delete(handle);
    const states = Object.entries(data.schedulers);
    loaded ||= rows.size > 0 || (states.length >= info.schedulers.length && states.every(([, s]) => s.state !== "loading"));
    replace(problems, states.filter(([, s]) => s.error && s.state !== "unused").map(([name, s]) =>
      h("div", { class: `problem ${s.state}` }, h("strong", {}, visible(name)), " ", visible(s.error))));
    const none = states.filter(([, s]) => s.state === "unused");
    unused.hidden = !none.length;
    unused.firstChild.textContent = `${none.length} scheduler${none.length === 1 ? "" : "s"} cannot be used here`;
    replace(unused.lastChild, none.map(([name, s]) => h("li", {}, h("strong", {}, visible(name)), visible(`: ${s.error}`))));
    update();
  };
  update();
  if (info.jobs) received(info.jobs);
  info.jobs = null;
  const stop = subscribe("jobs", () => ({}), {
    restart: () => { isOld = true; },
    message: received,
    error: (text) => replace(problems, h("div", { class: "problem error" }, visible(text))),
  });
  const timer = setInterval(() => table.draw(), 1000);
  return () => { stop(); clearInterval(timer); table.close(); };
}
