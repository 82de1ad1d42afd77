// Elements, texts and times. Data becomes text nodes only, never HTML.

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false || child === "") continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

// The focus stays on the element that is the same in the new content, so that a live update does
// not take it from a user of the keyboard.
export function replace(element, ...children) {
  const focus = focusWithin(element);
  element.textContent = "";
  append(element, children);
  focus?.();
  return element;
}

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

function focusWithin(element) {
  const active = document.activeElement;
  if (active === element || !element.contains(active)) return null;
  const nameOf = (e) => `${e.tagName} ${e.id || e.getAttribute("aria-label") || e.getAttribute("href") || (e.matches("button, summary") ? e.textContent : "")}`;
  const name = nameOf(active);
  const at = [...element.querySelectorAll(FOCUSABLE)].indexOf(active);
  return () => {
    const found = [...element.querySelectorAll(FOCUSABLE)];
    const same = found.filter((e) => nameOf(e) === name);
    const next = same.includes(found[at]) ? found[at] : same[0] || found[Math.min(at, found.length - 1)];
    next?.focus({ preventScroll: true });
    // What had the focus has gone: the keys continue in the region around it.
    if (!element.contains(document.activeElement)) element.closest("[tabindex]")?.focus({ preventScroll: true });
  };
}

// Control characters would hide or reorder text, so they are shown as symbols or code points.
export function visible(text) {
  return String(text).replace(
    // eslint-disable-next-line no-control-regex
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => (c < "\u0020" ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}

export function clipped(text, length) {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined || Number.isNaN(milliseconds)) return "";
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(milliseconds) {
  if (!milliseconds) return "";
  const seconds = (Date.now() - milliseconds) / 1000;
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

export function clockTime(milliseconds) {
  if (!milliseconds) return "";
  const d = new Date(milliseconds);
  const two = (n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

export function bytes(size) {
  if (size === null || size === undefined) return "";
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (size < 1024 || unit === "GB") return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return "";
}

export function numberText(value) {
  if (typeof value !== "number") return visible(value ?? "");
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const text = value.toPrecision(5);
  return text.includes("e") ? text : String(Number(text));
}

// Numbers that are not finite arrive as text, because JSON has none.
export function toNumber(value) {
  if (typeof value === "number") return value;
  if (typeof value !== "string" || value.trim() === "") return null;
  if (value === "Infinity" || value === "-Infinity") return null;
  const number = Number(value);
  return Number.isNaN(number) ? null : number;
}

export function badge(state) {
  return h("span", { class: `state state-${String(state).toLowerCase()}` }, visible(state));
}

export function toast(text, kind) {
  const box = h("div", { class: `toast ${kind || ""}` }, visible(text));
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 12000 : 5000);
}

export function empty(title, ...rest) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), rest.map((text) => h("p", {}, text)));
}

export function save(name, content) {
  const url = URL.createObjectURL(content);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser does not allow copying: select the text instead.", "bad");
  }
}

export function confirmDialog(title, content, action, kind) {
  return new Promise((resolve) => {
    const done = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    const dialog = h(
      "dialog",
      { "aria-label": title, oncancel: (event) => { event.preventDefault(); done(false); } },
      h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); done(true); } },
        h("h2", {}, title),
        content,
        h("div", { class: "buttons" },
          h("button", { type: "button", onclick: () => done(false) }, "Back"),
          h("button", { type: "submit", class: kind || "primary" }, action),
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

// While the pointer is pressed, elements must not be replaced: the click would be lost. Functions
// that redraw wait for its release, at most a second.
const waiting = new Set();
let pressed = 0;

function released() {
  pressed = 0;
  const functions = [...waiting];
  waiting.clear();
  functions.forEach((run) => run());
}

addEventListener("pointerdown", () => { pressed = setTimeout(released, 1000); }, true);
for (const name of ["pointerup", "pointercancel"]) {
  addEventListener(name, () => {
    clearTimeout(pressed);
    setTimeout(released);
  }, true);
}

export function whenReleased(run) {
  if (pressed) waiting.add(run);
  else run();
}
