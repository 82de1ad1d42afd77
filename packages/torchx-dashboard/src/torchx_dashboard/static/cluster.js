// The schedulers: checks, queues, and this user's share.
import { h, replace, empty, visible } from "./dom.js";
import { get } from "./net.js";

const LEVELS = { ok: "OK", warning: "Warning", error: "Error" };

export function showCluster(container, info) {
  let open = true;
  const refresh = h("button", { onclick: () => load() }, "Check again");
  const content = h("div", {});
  replace(container, h("div", { class: "title" }, h("h1", {}, "Cluster"), h("span", { class: "spacer" }), refresh), content);
  const load = async () => {
    refresh.disabled = true;
    if (!content.childElementCount) replace(content, empty("Checking the schedulers…", "This takes up to five seconds."));
    try {
      const data = await get("api/cluster");
      if (open) draw(content, data);
    } catch (error) {
      if (open) replace(content, h("div", { class: "problem error" }, visible(error.message)));
    }
    refresh.disabled = false;
  };
  load();
  return () => { open = false; };
}

function draw(content, { checks, queues, gpus }) {
  const subjects = [...new Set([...Object.keys(queues), ...checks.map((c) => c.subject)])];
  const isUsed = (name) => name in queues || checks.some((c) => c.subject === name && c.used);
  // The error of a scheduler that the user never used needs no attention.
  const levelOf = (c) => (c.level === "error" && !isUsed(c.subject) ? "warning" : c.level);
  subjects.sort((a, b) => isUsed(b) - isUsed(a) || (b in queues) - (a in queues) || (a === "torchx") - (b === "torchx") || a.localeCompare(b));
  replace(content, h("div", { class: "cards" }, subjects.map((name) => {
    const queue = queues[name];
    const own = checks.filter((c) => c.subject === name);
    const worst = ["error", "warning"].find((level) => own.some((c) => levelOf(c) === level)) || "ok";
    return h("section", { class: "card", "aria-label": name },
      h("div", { class: "title" }, h("h2", {}, visible(name === "torchx" ? "This installation" : name)), isUsed(name) ? h("span", { class: `level ${worst}` }, LEVELS[worst]) : h("span", { class: "level" }, "Not in use")),
      queue ? queueTable(queue) : null,
      gpus[name] ? gpuBar(gpus[name]) : null,
      h("ul", { class: "checks" }, own.map((c) => h("li", {}, h("span", { class: `level ${levelOf(c)}` }, LEVELS[levelOf(c)]), h("div", {}, visible(c.message), c.remedy ? h("div", { class: "muted" }, visible(c.remedy)) : null)))));
  })));
}

function gpuBar({ error, ...counts }) {
  if (error) return h("p", { class: "muted" }, visible(`The number of GPUs is unknown: ${error}`));
  const found = ["used", "free", "unavailable"].filter((state) => counts[state]);
  const total = found.reduce((sum, state) => sum + counts[state], 0);
  const text = total ? `${total} GPUs: ${found.map((state) => `${counts[state]} ${state === "used" ? "in use" : state}`).join(", ")}` : "The cluster has no GPUs.";
  const bar = h("span", { class: "progress", "aria-hidden": "true" }, found.map((state) => {
    const part = h("span", { class: `part part-${state}` });
    part.style.width = `${(100 * counts[state]) / total}%`;
    return part;
  }));
  return h("p", { class: "gpus" }, total ? bar : null, text);
}

function queueTable({ states, mine, gpus }) {
  const order = ["PENDING", "SUBMITTED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"].filter((state) => states[state]);
  const hasGpus = Object.values(gpus).some(Boolean);
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Queue" }, h("table", {},
    h("thead", {}, h("tr", {}, ["State", "Jobs", "Mine", hasGpus ? "My GPUs" : null].filter(Boolean).map((title, i) => h("th", { scope: "col", class: i ? "numeric" : "" }, title)))),
    h("tbody", {}, order.map((state) => h("tr", {}, h("td", {}, visible(state)), [states[state], mine[state] || 0].map((n) => h("td", { class: "numeric" }, String(n))), hasGpus ? h("td", { class: "numeric" }, String(gpus[state] || 0)) : null)))));
}
