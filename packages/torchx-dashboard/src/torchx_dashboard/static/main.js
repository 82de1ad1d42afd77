// Starts the page: chooses the view by the address, and shows the state of the connection.
import { h, replace, clockTime, visible } from "./dom.js";
import { connect, exported, get, onConnection } from "./net.js";
import { showJobs } from "./jobs.js";
import { showJob } from "./job.js";
import { showRuns } from "./runs.js";
import { showSweeps } from "./sweeps.js";
import { showCluster } from "./cluster.js";

const VIEWS = { jobs: showJobs, job: showJob, runs: showRuns, sweeps: showSweeps, cluster: showCluster };
const PAGES = [["jobs", "Jobs"], ["runs", "Runs"], ["sweeps", "Sweeps"], ["cluster", "Cluster"]];
let closeCurrent = null;
let pageInfo = null;

function showView(isFirst) {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const view = Object.hasOwn(VIEWS, name) ? name : "jobs";
  const active = view === "job" ? "jobs" : view;
  const pages = exported ? PAGES.filter(([id]) => exported.pages.includes(id)) : PAGES;
  replace(document.getElementById("nav"), pages.map(([id, title]) => h("a", { href: `#/${id}`, "aria-current": id === active ? "page" : null }, title)));
  const container = document.getElementById("view");
  closeCurrent?.();
  container.textContent = "";
  container.className = `view-${view}`;
  closeCurrent = VIEWS[view](container, pageInfo, rest) || null;
  const title = view === "job" ? rest[0]?.split("/").at(-1) : PAGES.find(([id]) => id === view)[1];
  document.title = `${visible(title || "")} · TorchX`;
  if (!isFirst) container.focus({ preventScroll: true });
}

function failed(text) {
  replace(document.getElementById("view"), h("div", { class: "problem error" }, h("strong", {}, "The page cannot be shown."), " ", visible(text)));
}

async function startPage() {
  const box = document.getElementById("connection");
  onConnection((state, text) => {
    box.className = state;
    box.textContent = { connected: "live", connecting: "reconnecting…", refused: "refused" }[state];
    if (state === "refused") failed(text);
  });
  if (exported) {
    box.textContent = `exported ${clockTime(exported.time)}`;
    pageInfo = { schedulers: exported.schedulers, actions: false };
  } else {
    connect();
    try {
      pageInfo = await get("api/info");
    } catch (error) {
      failed(error.message);
      return;
    }
  }
  addEventListener("hashchange", () => showView(false));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, dialog")) return;
    const search = document.querySelector('#view input[type="search"]');
    if (search) { search.focus(); event.preventDefault(); }
  });
  showView(true);
}

startPage();
