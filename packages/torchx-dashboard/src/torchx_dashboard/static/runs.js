// The runs of trackers: a table, plots of metrics, and artifacts.
import { h, replace, bytes, clipped, duration, empty, numberText, save, toNumber, toast, visible } from "./dom.js";
import { get, getBlob, subscribe, exported } from "./net.js";
import { hue, metricPlot } from "./charts.js";
import { Table } from "./table.js";
import { jobLink } from "./jobs.js";

const MOST_COLUMNS = 40;
const MOST_COMPARED = 10;
const DURATION = { id: " duration", title: "Duration", value: (r) => r.duration ?? null, cell: (r) => duration(r.duration), numeric: true, width: "96px", from: 560 };
const runFilter = { text: "" };

export function runName(id) {
  return id.split("/").at(-1) || id;
}

// `loss<0.1`, `lr=0.01` and words; all must hold.
export function runPredicate(text) {
  const parts = text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const found = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/.exec(word);
    if (!found) { const low = word.toLowerCase(); return (run) => textOf(run).includes(low); }
    const [, name, sign, wanted] = found;
    const number = toNumber(wanted);
    return (run) => {
      const value = run.values[name];
      if (value === undefined) return false;
      const own = toNumber(value);
      const both = own !== null && number !== null;
      if (sign === "=") return both ? own === number : String(value) === wanted;
      if (sign === "!=") return both ? own !== number : String(value) !== wanted;
      if (!both) return false;
      return { "<": own < number, ">": own > number, "<=": own <= number, ">=": own >= number }[sign];
    };
  });
  return (run) => parts.every((part) => part(run));
}

function textOf(run) {
  return (run.text ??= `${run.id} ${Object.entries(run.values).map(([name, value]) => `${name}=${value}`).join(" ")}`.toLowerCase());
}

// Columns that differ come first; a value that all runs share is no column.
export function runColumns(runs) {
  const seen = new Map();
  for (const run of runs) {
    for (const [name, value] of Object.entries(run.values)) {
      const column = seen.get(name);
      if (!column) seen.set(name, { name, first: value, differs: false, count: 1 });
      else { column.count++; if (value !== column.first) column.differs = true; }
    }
  }
  const all = [...seen.values()];
  const differing = all.filter((c) => c.differs || (c.count < runs.length) || runs.length === 1);
  return { shown: differing.slice(0, MOST_COLUMNS), more: Math.max(0, differing.length - MOST_COLUMNS), same: all.filter((c) => !differing.includes(c)) };
}

export function showRuns(container, info, [tracker, id]) {
  if (id) return showRun(container, tracker, id);
  let runs = [];
  let complete = false;
  let trackers = null;
  const errors = new Map();
  const count = h("span", { class: "muted count", role: "status" });
  const problems = h("div", { class: "problems", role: "status" });
  const same = h("p", { class: "muted same" });
  const search = h("input", { type: "search", value: runFilter.text, placeholder: "Filter: words, lr=0.01, loss<0.5", "aria-label": "Filter the runs", spellcheck: false, oninput: () => { runFilter.text = search.value; update(); } });
  const compare = h("button", { class: "primary", disabled: true, onclick: () => showComparison() }, "Compare plots");
  const comparison = h("div", { class: "comparison" });
  const first = { id: " run", title: "Run", value: (r) => r.id, cell: (r) => h("a", { class: "clip", tabindex: "-1", title: visible(r.id), href: runHref(r) }, visible(runName(r.id))), width: "minmax(120px, 1.5fr)" };
  const table = new Table({ columns: [first], label: "Runs", key: (r) => `${r.tracker} ${r.id}`, selectable: true, open: (r) => { location.hash = runHref(r); }, none: empty("Loading the runs…") });
  const chosen = () => runs.filter((r) => table.selected.has(`${r.tracker} ${r.id}`)).slice(0, MOST_COMPARED);
  table.onselect = () => {
    const number = table.selected.size;
    compare.disabled = number === 0;
    compare.textContent = number > 1 ? `Compare ${Math.min(number, MOST_COMPARED)} runs` : "Compare plots";
  };
  let close = null;
  const showComparison = () => { close?.(); close = compareRuns(comparison, chosen()); comparison.scrollIntoView({ block: "nearest" }); };
  const update = () => {
    const found = runs.filter(runPredicate(runFilter.text));
    count.textContent = trackers ? `${found.length === runs.length ? "" : `${found.length.toLocaleString("en")} of `}${runs.length.toLocaleString("en")} runs${complete ? "" : ", loading…"}` : "";
    const none = !complete ? empty("Loading the runs…")
      : !trackers?.length ? empty("No tracker is configured.", "Jobs record parameters and metrics in a tracker, which .torchxconfig configures.")
      : runs.length ? empty("No run matches the filter.") : empty("The trackers have no runs yet.");
    table.setRows(found, none);
  };
  const columns = () => {
    const found = runColumns(runs);
    const names = found.shown.map((c) => c.name);
    const timed = runs.some((r) => r.duration !== undefined) ? [DURATION] : [];
    table.setColumns([first, ...timed, ...names.map((name, i) => ({
      id: name, title: visible(name), value: (r) => toNumber(r.values[name]) ?? r.values[name] ?? null,
      cell: (r) => h("span", { class: "clip", title: visible(r.values[name] ?? "") }, numberText(r.values[name])),
      numeric: runs.slice(0, 50).every((r) => r.values[name] === undefined || toNumber(r.values[name]) !== null || /^(NaN|-?Infinity)$/.test(r.values[name])),
      width: "minmax(92px, 1fr)", from: 300 + 100 * i,
    }))]);
    const hidden = found.more ? ` ${found.more} more columns are on the runs' own pages.` : "";
    same.textContent = found.same.length && runs.length > 1 ? `Same in all runs: ${clipped(found.same.map((c) => `${visible(c.name)}=${visible(c.first)}`).join(", "), 300)}.${hidden}` : hidden;
  };
  replace(container, h("h1", {}, "Runs"), h("div", { class: "toolbar" }, search, compare, count), problems, same, table.element, comparison);
  update();
  const stop = subscribe("runs", () => ({}), {
    restart: () => { runs = []; complete = false; errors.clear(); },
    message: (data) => {
      if (data.trackers) trackers = data.trackers;
      if (data.runs) runs.push(...data.runs);
      if (data.error) errors.set(data.tracker, data.error);
      if (data.complete) complete = true;
      replace(problems, [...errors].map(([name, text]) => h("div", { class: "problem error" }, h("strong", {}, visible(name)), " ", visible(text))));
      if (data.complete || runs.length <= 1000) columns();
      update();
    },
    error: (text) => { complete = true; replace(problems, h("div", { class: "problem error" }, visible(text))); update(); },
  });
  return () => { stop(); close?.(); table.close(); };
}

function runHref(run) {
  return `#/runs/${encodeURIComponent(run.tracker)}/${encodeURIComponent(run.id)}`;
}

function compareRuns(container, runs) {
  replace(container, h("h2", {}, "Metrics over steps"), empty("Loading the metrics…"));
  let close = null;
  Promise.all(runs.map((run) => get("api/run", { tracker: run.tracker, id: run.id, history: "1" }).then((history) => ({ run, history }), (error) => { toast(error.message, "bad"); return { run, history: {} }; })))
    .then((found) => { close = plots(container, found.map(({ run, history }) => ({ label: runName(run.id), history }))); });
  return () => close?.();
}

// Draw one plot for each metric, with a line for each run.
export function plots(container, runs) {
  const state = { log: false, smoothing: 0 };
  // A single value is no curve, and values that are not finite cannot be drawn.
  const isCurve = ([, values]) => values.length > 1 && values.some((value) => toNumber(value) !== null);
  const names = [...new Set(runs.flatMap((run) => Object.entries(run.history).filter(([, points]) => isCurve(points)).map(([name]) => name)))].slice(0, 30);
  const area = h("div", { class: "plots" });
  let drawn = [];
  const clear = () => { drawn.forEach((plot) => plot.close()); drawn = []; };
  const draw = () => {
    clear();
    drawn = names.map((name) => metricPlot(name, runs.map((run, i) => ({ label: run.label, colour: hue(i), steps: run.history[name]?.[0].map(Number) || [], values: (run.history[name]?.[1] || []).map(toNumber) })).filter((line) => line.steps.length), state));
    replace(area, drawn);
  };
  const output = h("output", {}, "0");
  const slider = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", value: "0", oninput: () => { state.smoothing = Number(slider.value); output.textContent = slider.value; draw(); } });
  const log = h("input", { type: "checkbox", onchange: () => { state.log = log.checked; draw(); } });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  replace(container, h("h2", {}, "Metrics over steps"),
    names.length ? h("div", { class: "toolbar" }, h("label", {}, log, "log scale"), h("label", {}, "smoothing", slider, output)) : empty("These runs have no metrics over steps.", "A tracker keeps the values of each call, for example run.add_metadata(step=1, loss=0.5)."), area);
  draw();
  return () => { clear(); scheme.removeEventListener("change", draw); };
}

function showRun(container, tracker, id) {
  let close = null;
  const urls = [];
  replace(container, empty("Loading the run…"));
  get("api/run", { tracker, id }).then((run) => {
    const area = h("section", { class: "run-plots" });
    const isJob = /^\w+:\/\//.test(id);
    replace(container,
      h("p", { class: "crumbs" }, h("a", { href: "#/runs" }, "Runs"), " / ", h("span", { class: "mono clip" }, visible(id))),
      h("div", { class: "title" }, h("h1", {}, visible(runName(id))), h("span", { class: "muted" }, visible(tracker)), isJob ? jobLink(id, "Its job") : null),
      area,
      h("div", { class: "columns" },
        h("section", {}, h("h2", {}, "Values"), Object.keys(run.values).length ? h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Values" }, h("table", {}, h("tbody", {}, Object.entries(run.values).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, visible(name)), h("td", { class: "mono" }, visible(value))))))) : empty("The run has no values.")),
        h("section", {}, h("h2", {}, "Artifacts"), run.artifacts.length ? run.artifacts.map((artifact) => artifactCard(tracker, id, artifact, urls)) : empty("The run has no artifacts."),
          run.sources.length ? [h("h2", {}, "Made from"), h("ul", { class: "plain" }, run.sources.map((s) => h("li", { class: "mono" }, visible(s.run), s.artifact ? ` (${visible(s.artifact)})` : "")))] : null)));
    close = plots(area, [{ label: runName(id), history: run.history }]);
  }).catch((error) => replace(container, h("div", { class: "problem error" }, visible(error.message))));
  return () => { close?.(); urls.forEach((url) => URL.revokeObjectURL(url)); };
}

function artifactCard(tracker, id, artifact, urls) {
  const content = h("div", {});
  const load = () => getBlob("api/artifact", { tracker, id, name: artifact.name });
  const isShown = artifact.type !== "application/octet-stream";
  const show = async () => {
    try {
      const blob = await load();
      if (artifact.type.startsWith("image/")) {
        const url = URL.createObjectURL(new Blob([blob], { type: artifact.type }));
        urls.push(url);
        replace(content, h("img", { src: url, alt: artifact.name }));
      } else {
        let text = await blob.text();
        if (artifact.type === "application/json") { try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it is */ } }
        replace(content, h("pre", { tabindex: "0", class: "document" }, visible(clipped(text, 200000))));
      }
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const download = async () => {
    try { save(artifact.path.split("/").at(-1) || artifact.name, await load()); } catch (error) { toast(error.message, "bad"); }
  };
  const here = artifact.size !== null && !exported;
  return h("div", { class: "card" },
    h("div", { class: "toolbar" }, h("strong", { class: "clip" }, visible(artifact.name)), h("span", { class: "muted" }, bytes(artifact.size)), h("span", { class: "spacer" }),
      here && isShown ? h("button", { onclick: show }, "Show") : null, here ? h("button", { onclick: download }, "Download") : null),
    h("p", { class: "mono muted clip", title: visible(artifact.path) }, visible(artifact.path)), content);
}
