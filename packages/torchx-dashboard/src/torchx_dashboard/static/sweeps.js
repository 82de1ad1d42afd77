// Sweeps: their list, and one sweep as a table and as parallel coordinates.
import { h, replace, badge, duration, empty, numberText, toNumber, visible } from "./dom.js";
import { subscribe } from "./net.js";
import { parallel } from "./charts.js";
import { Table } from "./table.js";
import { jobLink } from "./jobs.js";

function progress(counts) {
  const total = Object.values(counts).reduce((a, b) => a + b, 0);
  const parts = ["SUCCEEDED", "RUNNING", "FAILED", "CANCELLED"].filter((state) => counts[state]).map((state) => {
    const part = h("span", { class: `part part-${state.toLowerCase()}` });
    part.style.width = `${(100 * counts[state]) / total}%`;
    return part;
  });
  const label = Object.entries(counts).filter(([, n]) => n).map(([state, n]) => `${n} ${state.toLowerCase()}`).join(", ");
  return h("span", { class: "progress", role: "img", "aria-label": label, title: label }, parts);
}

export function showSweeps(container, info, [handle]) {
  if (handle) return showSweep(container, handle);
  const link = (s) => h("a", { href: `#/sweeps/${encodeURIComponent(s.handle)}`, class: "clip", tabindex: "-1" }, visible(s.component));
  const total = (s) => Object.values(s.counts).reduce((a, b) => a + b, 0);
  const table = new Table({
    label: "Sweeps", key: (s) => s.handle, open: (s) => { location.hash = `#/sweeps/${encodeURIComponent(s.handle)}`; }, none: empty("Loading the sweeps…"),
    columns: [
      { id: "component", title: "Component", value: (s) => s.component, cell: link, width: "minmax(120px, 2fr)" },
      { id: "state", title: "State", value: (s) => s.state, cell: (s) => badge(s.state), width: "112px" },
      { id: "progress", title: "Progress", value: (s) => (s.counts.SUCCEEDED || 0) / total(s), cell: (s) => progress(s.counts), width: "minmax(80px, 1fr)" },
      { id: "elements", title: "Elements", value: total, cell: (s) => String(total(s)), width: "96px", numeric: true, from: 420 },
      { id: "scheduler", title: "Scheduler", value: (s) => s.scheduler, cell: (s) => h("span", { class: "clip" }, visible(s.scheduler)), width: "minmax(90px, 140px)", from: 560 },
      { id: "handle", title: "Handle", value: (s) => s.handle, cell: (s) => h("span", { class: "clip mono muted" }, visible(s.handle)), width: "minmax(150px, 1fr)", from: 800 },
    ],
  });
  replace(container, h("h1", {}, "Sweeps"), table.element);
  table.setRows([]);
  const stop = subscribe("sweeps", () => ({}), {
    message: (rows) => table.setRows(rows, empty("There are no sweeps yet.", "A sweep runs a component with many sets of parameters: torchx sweep COMPONENT --grid lr=0.1,0.01")),
    error: (text) => table.setRows([], h("div", { class: "problem error" }, visible(text))),
  });
  return () => { stop(); table.close(); };
}

function showSweep(container, handle) {
  const state = { metric: "", direction: "min" };
  let data = null;
  let chart = null;
  let names = "";
  const crumbs = () => h("p", { class: "crumbs" }, h("a", { href: "#/sweeps" }, "Sweeps"), " / ", h("span", { class: "mono clip" }, visible(handle)));
  const head = h("div", {}, crumbs(), h("div", { class: "title" }, h("h1", {}, "Sweep")));
  const metricBox = h("select", { class: "metric", "aria-label": "Metric", onchange: () => { state.metric = metricBox.value; draw(); } });
  const direction = h("select", { "aria-label": "Best is", onchange: () => { state.direction = direction.value; draw(); } }, h("option", { value: "min" }, "smallest is best"), h("option", { value: "max" }, "largest is best"));
  const bestText = h("span", { class: "best-text", role: "status" });
  const plot = h("div", { class: "wide sweep-plot" });
  const table = new Table({ label: "Elements", key: (e) => String(e.element), columns: [], sort: "element", open: (e) => { if (e.handle) location.hash = `#/job/${encodeURIComponent(e.handle)}`; }, none: empty("Loading the sweep…") });
  const value = (kind, name) => (e) => toNumber(e[kind][name]) ?? e[kind][name] ?? null;
  const draw = () => {
    const parameters = [...new Set(data.elements.flatMap((e) => Object.keys(e.parameters)))];
    // A tracker often records the parameters, too, as TRACKER.NAME; texts are no metrics.
    const isNumber = (x) => toNumber(x) !== null || /^(NaN|-?Infinity)$/.test(x);
    const isCopy = (m) => parameters.some((name) => m.endsWith(`.${name}`));
    const metrics = [...new Set(data.elements.flatMap((e) => Object.keys(e.metrics).filter((m) => !isCopy(m) && isNumber(e.metrics[m]))))];
    const choices = ["duration", ...metrics.filter((m) => data.elements.some((e) => toNumber(e.metrics[m]) !== null))];
    if (!choices.includes(state.metric)) {
      state.metric = choices.find((m) => /loss|error/i.test(m)) || choices.find((m) => /acc|score|reward/i.test(m)) || choices[1] || choices[0];
      if (/acc|score|reward/i.test(state.metric)) state.direction = "max";
    }
    replace(metricBox, choices.map((m) => h("option", { value: m }, visible(m))));
    metricBox.value = state.metric;
    direction.value = state.direction;
    const score = (e) => (state.metric === "duration" && !metrics.includes("duration") ? e.duration : toNumber(e.metrics[state.metric]));
    let best = null;
    for (const e of data.elements) {
      const own = score(e);
      if (own === null || e.state !== "SUCCEEDED") continue;
      if (!best || (state.direction === "min" ? own < score(best) : own > score(best))) best = e;
    }
    bestText.textContent = best ? `★ Best: element ${best.element}, ${visible(state.metric)} ${numberText(score(best))}` : "";
    replace(head, crumbs(),
      h("div", { class: "title" }, h("h1", {}, visible(data.component)), badge(data.state), progress(data.counts)),
      data.note ? h("div", { class: "problem silent" }, visible(data.note)) : null);
    const columns = [
      { id: "element", title: "Element", value: (e) => e.element, cell: (e) => h("span", {}, e.handle ? jobLink(e.handle, String(e.element)) : String(e.element), e === best ? h("span", { class: "star", title: "Best" }, " ★") : ""), width: "92px", numeric: true },
      ...parameters.map((name, i) => ({ id: `p ${name}`, title: visible(name), value: value("parameters", name), cell: (e) => h("span", { class: "clip", title: visible(e.parameters[name] ?? "") }, numberText(e.parameters[name])), numeric: true, width: "minmax(84px, 1fr)", from: i < 1 ? 0 : 240 + 96 * i })),
      { id: "state", title: "State", value: (e) => e.state, cell: (e) => badge(e.state), width: "112px", from: 420 },
      { id: "duration", title: "Duration", value: (e) => e.duration, cell: (e) => duration(e.duration === null ? NaN : e.duration * 1000), width: "104px", numeric: true, from: 560 },
      ...metrics.map((name, i) => ({ id: `m ${name}`, title: visible(name), value: value("metrics", name), cell: (e) => h("span", { class: "clip", title: visible(e.metrics[name] ?? "") }, numberText(e.metrics[name])), numeric: true, width: "minmax(84px, 1fr)", from: name === state.metric ? 0 : 640 + 96 * i })),
      { id: "reason", title: "Reason", value: (e) => e.reason, cell: (e) => h("span", { class: "clip muted", title: visible(e.reason || "") }, visible(e.reason || "")), width: "minmax(90px, 1.5fr)", from: 980 },
    ];
    const signature = columns.map((c) => `${c.id}${c.from}`).join();
    if (signature !== names) { names = signature; table.setColumns(columns); } else table.columns = columns;
    table.setRows(data.elements, empty("The sweep has no elements."));
    table.layout();
    chart?.close();
    const axes = [...parameters.slice(0, 8).map((name) => ({ title: name, value: value("parameters", name) })), { title: state.metric, value: score }];
    const shown = data.elements.filter((e) => score(e) !== null);
    chart = shown.length ? parallel(axes, shown, { best, label: `Parallel coordinates of ${shown.length} elements; ${bestText.textContent || "no best element yet"}`, open: table.open }) : null;
    replace(plot, chart || empty("The plot appears when an element has ended."));
  };
  replace(container, head, h("div", { class: "toolbar" }, metricBox, direction, bestText), plot, table.element);
  table.setRows([]);
  const stop = subscribe("sweep", () => ({ handle }), {
    message: (found) => {
      if (!found) { replace(container, empty("This sweep does not exist.")); return; }
      data = found;
      draw();
    },
    error: (text) => replace(head, h("div", { class: "problem error" }, visible(text))),
  });
  return () => { stop(); chart?.close(); table.close(); };
}
