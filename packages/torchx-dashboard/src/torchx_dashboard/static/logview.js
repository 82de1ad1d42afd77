// The logs of a job: a list that draws only the visible lines, search, colours and downloads.
import { h, replace, whenReleased, clipped, save, toast, visible, bytes, copy } from "./dom.js";
import { plain, spans } from "./ansi.js";
import { subscribe, getBlob, exported } from "./net.js";

const LINE = 19;
const MOST_LINES = 500000;
const DROPPED = 50000;
const CLIP = 2000;
const SEARCH_LIMIT = 1000;
const SEARCH_TICKS = 4;
const ERROR = /\b(error|exception|traceback|fatal|panic|critical|segmentation fault|out of memory|killed)\b|[A-Z]\w+(Error|Exception)\b/i;
const NO_ERROR = /\b(0|no) (errors?|exceptions?)\b/i;
const COLOURS = 8;

let searchUrl = "";

// The page contains the script of the worker.
function searchSource() {
  searchUrl ||= URL.createObjectURL(new Blob([document.getElementById("search-worker").textContent], { type: "text/javascript" }));
  return searchUrl;
}

export class LogView {
  constructor(handle, { replicas, streams, initial }) {
    this.handle = handle;
    this.replicas = replicas;
    this.chosen = new Set(initial);
    this.mode = "combined";
    this.hasStreams = streams;
    this.drawNow = () => this.draw();
    this.fields();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.scroller);
    this.start();
  }

  fields() {
    this.status = h("span", { class: "muted", role: "status" });
    this.query = h("input", { type: "search", placeholder: "Search: text or /expression/", "aria-label": "Search in the log", spellcheck: false, oninput: () => this.searchSoon(), onkeydown: (e) => this.queryKey(e) });
    this.only = h("input", { type: "checkbox", onchange: () => this.setView() });
    this.followBox = h("input", { type: "checkbox", checked: true, onchange: () => this.setFollow(this.followBox.checked) });
    this.chooser = h("div", { class: "replicas", role: "group", "aria-label": "Replicas" });
    const mode = h("select", { "aria-label": "Streams", onchange: () => { this.mode = mode.value; this.restart(); } },
      h("option", { value: "combined" }, "stdout and stderr"),
      h("option", { value: "apart" }, "stderr marked"),
      h("option", { value: "stdout" }, "only stdout"),
      h("option", { value: "stderr" }, "only stderr"));
    this.bar = h("div", { class: "toolbar" },
      this.query,
      h("span", { class: "group" },
        h("button", { title: "Previous match (Shift+Enter)", "aria-label": "Previous match", onclick: () => this.step(-1) }, "↑"),
        h("button", { title: "Next match (Enter)", "aria-label": "Next match", onclick: () => this.step(1) }, "↓")),
      h("label", {}, this.only, "matches only"),
      h("label", {}, this.followBox, "follow"),
      h("button", { title: "Go to the first error (e)", onclick: () => this.firstError() }, "First error"),
      this.hasStreams && !exported ? mode : null,
      !exported && h("button", { onclick: () => this.download() }, "Download"),
      this.status);
    this.space = h("div", { class: "lines" });
    this.scroller = h("div", { class: "log", role: "region", tabindex: "0", "aria-label": "Log", onscroll: () => this.scrolled(), onkeydown: (e) => this.key(e) }, this.space);
    this.detail = h("div", { class: "line-detail", hidden: true });
    this.element = h("section", { class: "logview", "aria-label": "Logs" }, this.chooser, this.bar, this.scroller, this.detail);
    this.drawChooser();
  }

  drawChooser() {
    if (this.replicas.length < 2) return replace(this.chooser);
    const shown = this.replicas.slice(0, 200);
    const all = h("button", { class: "chip", onclick: () => this.choose(this.chosen.size === shown.length ? shown.slice(0, 1) : shown) }, this.chosen.size === shown.length ? "one" : "all");
    replace(this.chooser, all, shown.map((name) =>
      h("button", { class: `chip c${this.colour(name)}`, "aria-pressed": String(this.chosen.has(name)), onclick: () => {
        const next = new Set(this.chosen);
        if (!next.delete(name)) next.add(name);
        this.choose(next.size ? [...next] : [name]);
      } }, visible(name))),
      this.replicas.length > shown.length ? h("span", { class: "muted" }, `and ${this.replicas.length - shown.length} more`) : null);
  }

  choose(names) {
    this.chosen = new Set(names);
    this.drawChooser();
    this.restart();
  }

  colour(name) {
    return this.replicas.indexOf(name) % COLOURS;
  }

  streams() {
    return this.mode === "apart" ? ["stdout", "stderr"] : [this.mode];
  }

  // -- receiving

  start() {
    this.texts = [];
    this.owners = [];
    this.logs = new Map();
    this.dropped = 0;
    this.size = 0;
    this.ended = false;
    this.matches = null;
    this.view = null;
    this.draw();
    const chosen = () => this.replicas.filter((name) => this.chosen.has(name)).map((name) => {
      const cut = name.lastIndexOf("/");
      return [name.slice(0, cut), Number(name.slice(cut + 1))];
    });
    this.stop = subscribe("log", () => ({ handle: this.handle, replicas: chosen(), streams: this.streams(), skip: this.skip() }), {
      message: (parts) => this.received(parts),
      error: (text) => { this.problem = text; this.say(); },
      end: () => { this.ended = true; this.say(); },
      restart: () => this.dropOpenLines(),
    });
  }

  // After a reconnection, the server leaves out the whole lines that are here.
  skip() {
    return Object.fromEntries([...this.logs].map(([key, log]) => [key, log.count]));
  }

  dropOpenLines() {
    this.problem = "";
    this.ended = false;
    for (const log of this.logs.values()) {
      if (log.open >= 0) this.texts[log.open] = "";
      log.resume = log.open;
      log.open = -1;
    }
  }

  restart() {
    this.stop();
    this.endSearch();
    this.start();
    this.searchSoon();
  }

  received(parts) {
    for (const part of parts) {
      const log = this.log(part.log);
      if (!this.chosen.has(log.name)) continue; // an exported page has the logs of all replicas
      if (part.error) {
        this.push(log, `[${part.error}]`);
        continue;
      }
      this.size += part.text.length;
      const lines = part.text.split("\n");
      for (let i = 0; i < lines.length; i++) {
        const isLast = i === lines.length - 1;
        if (isLast && lines[i] === "") break;
        if (log.open >= 0) this.texts[log.open] += lines[i];
        else if (log.resume >= 0) { this.texts[log.resume] = lines[i]; log.open = log.resume; log.resume = -1; }
        else log.open = this.push(log, lines[i]);
        if (!isLast) { log.open = -1; log.count++; }
      }
    }
    if (this.texts.length > MOST_LINES) this.dropOldest();
    this.searchMore();
    this.drawSoon();
  }

  log(key) {
    if (!this.logs.has(key)) {
      const [stream, ...rest] = key.split("/");
      const name = rest.join("/");
      this.logs.set(key, { key, name, open: -1, resume: -1, count: 0, colour: this.colour(name), isError: stream === "stderr" });
    }
    return this.logs.get(key);
  }

  push(log, text) {
    this.owners.push(log);
    return this.texts.push(text) - 1;
  }

  dropOldest() {
    this.texts.splice(0, DROPPED);
    this.owners.splice(0, DROPPED);
    this.dropped += DROPPED;
    for (const log of this.logs.values()) {
      log.open = Math.max(-1, log.open - DROPPED);
      log.resume = Math.max(-1, log.resume - DROPPED);
    }
    if (this.searching) this.search();
  }

  say() {
    const count = `${this.texts.length.toLocaleString("en")} lines, ${bytes(this.size)}`;
    const found = this.matches ? `${this.matches.length.toLocaleString("en")} matches · ` : "";
    const dropped = this.dropped ? ` · the first ${this.dropped.toLocaleString("en")} lines are only in the download` : "";
    this.status.textContent = `${this.problem ? `${this.problem} · ` : found}${count}${this.ended ? "" : " · live"}${dropped}`;
    this.status.classList.toggle("bad", Boolean(this.problem));
  }

  // -- drawing

  get length() {
    return this.view ? this.view.length : this.texts.length;
  }

  drawSoon() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; whenReleased(this.drawNow); });
  }

  draw() {
    this.space.style.height = `${Math.max(1, this.length) * LINE}px`;
    if (this.followBox.checked && this.length) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.wanted = this.scroller.scrollTop;
    }
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / LINE) - 5);
    const last = Math.min(this.length, first + Math.ceil(this.scroller.clientHeight / LINE) + 10);
    const rows = [];
    for (let i = first; i < last; i++) rows.push(this.row(i));
    const top = h("div", { class: "window" }, rows);
    top.style.transform = `translateY(${first * LINE}px)`;
    replace(this.space, this.length ? top : h("p", { class: "muted waiting" }, this.view ? "No line matches." : this.problem || (this.ended ? "The log is empty." : "Waiting for the first line…")));
    this.say();
  }

  row(position) {
    const index = this.view ? this.view[position] : position;
    const log = this.owners[index];
    const isMatch = this.matches && this.matchSet.has(index);
    const isCurrent = index === this.current;
    return h("div", { class: `line${log.isError && this.mode === "apart" ? " stderr" : ""}${isMatch ? " match" : ""}${isCurrent ? " current" : ""}`, onclick: () => this.choosing(index) },
      h("span", { class: "no" }, String(this.dropped + index + 1)),
      this.chosen.size > 1 ? h("span", { class: `who c${log.colour}`, title: log.name }, clipped(visible(log.name), 20)) : null,
      spans(clipped(this.texts[index], CLIP), isMatch ? this.literal : ""));
  }

  choosing(index) {
    if (getSelection()?.toString()) return;
    this.current = index;
    const text = plain(this.texts[index]);
    replace(this.detail,
      h("div", { class: "toolbar" },
        h("strong", {}, `Line ${this.dropped + index + 1}`), h("span", { class: "muted" }, `${visible(this.owners[index].name)} · ${text.length.toLocaleString("en")} characters`),
        h("button", { onclick: () => copy(text) }, "Copy"),
        h("button", { onclick: () => { this.detail.hidden = true; } }, "Close")),
      h("pre", { tabindex: "0" }, visible(clipped(text, 100000))));
    this.detail.hidden = false;
    this.draw();
  }

  scrolled() {
    const end = this.scroller.scrollHeight - this.scroller.clientHeight - this.scroller.scrollTop;
    if (this.scroller.scrollTop < (this.wanted || 0) - 2 && end > LINE) this.followBox.checked = false;
    if (end <= 2 && !this.ended) this.followBox.checked = true;
    this.draw();
  }

  setFollow(value) {
    this.followBox.checked = value;
    this.wanted = this.scroller.scrollTop;
    this.draw();
  }

  goTo(index) {
    this.setFollow(false);
    this.current = index;
    if (this.view && !this.view.includes(index)) {
      this.only.checked = false; // a line that does not match is shown among all lines
      this.view = null;
      this.draw();
    }
    const position = this.view ? this.view.indexOf(index) : index;
    this.scroller.scrollTop = Math.max(0, position * LINE - this.scroller.clientHeight / 3);
    this.wanted = 0;
    this.draw();
  }

  firstError() {
    for (let i = 0; i < this.texts.length; i++) {
      const text = this.texts[i].length > 10000 ? this.texts[i].slice(0, 10000) : this.texts[i];
      if (ERROR.test(text) && !NO_ERROR.test(text)) return this.goTo(i);
    }
    return toast("No line looks like an error.");
  }

  key(event) {
    const keys = { "/": () => this.query.focus(), n: () => this.step(1), N: () => this.step(-1), e: () => this.firstError(), f: () => this.setFollow(!this.followBox.checked) };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
    keys[event.key]();
    event.preventDefault();
  }

  // -- search

  queryKey(event) {
    if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") { this.query.value = ""; this.search(); this.scroller.focus(); }
    else return;
    event.preventDefault();
  }

  searchSoon() {
    clearTimeout(this.searchTimer);
    this.searchTimer = setTimeout(() => this.search(), 150);
  }

  endSearch() {
    this.searching?.worker.terminate();
    clearInterval(this.searching?.timer);
    this.searching = null;
    this.matches = null;
    this.matchSet = new Set();
    this.problem = "";
  }

  search() {
    this.endSearch();
    const text = this.query.value;
    if (text) {
      const found = /^\/(.+)\/([imsu]*)$/.exec(text);
      this.literal = found ? "" : text;
      const pattern = found ? found[1] : text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      const flags = found ? found[2] : "";
      try {
        new RegExp(pattern, flags);
      } catch (error) {
        this.problem = error.message;
        return this.setView();
      }
      const worker = new Worker(searchSource());
      this.searching = { worker, sent: 0, open: [], waiting: false };
      this.matches = [];
      worker.onmessage = ({ data }) => { if (this.searching?.worker === worker) this.searched(data); };
      this.sendLines({ pattern, flags });
    }
    return this.setView();
  }

  searchMore() {
    if (this.searching && !this.searching.waiting) this.sendLines({});
  }

  sendLines(message) {
    const state = this.searching;
    const { texts } = this;
    if (texts.length === state.sent && !state.open.length && !message.pattern) return;
    const again = state.open.map((index) => [index, texts[index]]);
    if (texts.length > state.sent) message.text = texts.slice(state.sent).join("\n");
    state.sent = texts.length;
    state.open = [...this.logs.values()].map((log) => log.open).filter((index) => index >= 0);
    state.waiting = true;
    state.worker.postMessage({ ...message, again });
  }

  // The time to start the worker does not count, and neither does a time in which this page is
  // busy and could not receive the progress: then, several ticks become one.
  watchSearch(state) {
    let ticks = 0;
    clearInterval(state.timer);
    state.timer = setInterval(() => {
      if (++ticks < SEARCH_TICKS) return;
      this.endSearch();
      this.problem = "The search was stopped after 1 s: choose a simpler expression";
      this.setView();
    }, SEARCH_LIMIT / SEARCH_TICKS);
  }

  searched({ found, again = [], isPart }) {
    const state = this.searching;
    if (!state) return;
    if (isPart) this.watchSearch(state);
    else clearInterval(state.timer);
    state.waiting = isPart;
    for (const index of [...again, ...found]) {
      if (this.matchSet.has(index)) continue;
      this.matchSet.add(index);
      this.matches.push(index);
    }
    if (again.length) this.matches.sort((a, b) => a - b);
    this.setView();
    if (!isPart) this.searchMore();
  }

  setView() {
    this.view = this.only.checked && this.matches ? this.matches : null;
    this.drawSoon();
  }

  step(direction) {
    if (!this.matches?.length) return;
    const at = this.current ?? (direction > 0 ? -1 : this.texts.length);
    const next = direction > 0 ? this.matches.find((index) => index > at) : this.matches.findLast((index) => index < at);
    this.goTo(next ?? (direction > 0 ? this.matches[0] : this.matches.at(-1)));
  }

  async download() {
    for (const name of this.chosen) {
      const cut = name.lastIndexOf("/");
      for (const stream of this.streams()) {
        try {
          const blob = await getBlob("api/log", { handle: this.handle, role: name.slice(0, cut), replica: name.slice(cut + 1), stream });
          save(`${name.replace(/[^\w.-]+/g, "-")}${stream === "combined" ? "" : `-${stream}`}.log`, blob);
        } catch (error) {
          toast(error.message, "bad");
        }
      }
    }
  }

  close() {
    this.stop();
    this.endSearch();
    this.observer.disconnect();
  }
}
