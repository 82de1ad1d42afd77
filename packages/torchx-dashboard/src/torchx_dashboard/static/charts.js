// Plots: metrics over steps with uPlot, and parallel coordinates.
import { h, numberText, visible } from "./dom.js";

/* global uPlot */
const SVG = "http://www.w3.org/2000/svg";
const HUES = ["#3366cc", "#d9480f", "#2b8a3e", "#9c36b5", "#0b7285", "#c2255c", "#846200", "#5f3dc4", "#495057", "#1971c2"];
const DARK_HUES = ["#74a9ff", "#ff922b", "#69db7c", "#da77f2", "#3bc9db", "#f783ac", "#fcc419", "#9775fa", "#ced4da", "#4dabf7"];

export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

export function hue(index) {
  return (isDark() ? DARK_HUES : HUES)[index % HUES.length];
}

export function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// An exponential moving average; `smoothing` is between 0 and 1.
export function smoothed(values, smoothing) {
  if (!smoothing) return values;
  let last = null;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    last = last === null ? value : smoothing * last + (1 - smoothing) * value;
    return last;
  });
}

// lines: [{label, steps, values, colour}]
export function metricPlot(title, lines, { log, smoothing }) {
  const box = h("div", { class: "plot" }, h("h3", {}, visible(title)));
  const target = h("div", { class: "plot-canvas", role: "img", "aria-label": plotSummary(title, lines) });
  box.append(target);
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const at = new Map(steps.map((step, i) => [step, i]));
  const data = [steps, ...lines.map((line) => {
    const column = new Array(steps.length).fill(undefined);
    const values = smoothed(line.values, smoothing);
    line.steps.forEach((step, i) => {
      const value = values[i];
      column[at.get(step)] = log && !(value > 0) ? null : value;
    });
    return column;
  })];
  const axis = { stroke: colourOf("--muted"), grid: { stroke: colourOf("--line"), width: 1 }, ticks: { stroke: colourOf("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  let plot = null;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width < 50) return;
    if (plot) { plot.setSize({ width, height: 220 }); return; }
    plot = new uPlot({
      width, height: 220,
      scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : numberText(tick))) }],
      series: [{ label: "step" }, ...lines.map((line) => ({ label: visible(line.label), stroke: line.colour, width: 2, spanGaps: true, points: { show: line.steps.length < 40, size: 5 }, value: (_, value) => (value === null || value === undefined ? "–" : numberText(value)) }))],
      legend: { show: lines.length < 9 },
      cursor: { points: { size: 7 } },
    }, data, target);
  });
  observer.observe(target);
  box.close = () => { observer.disconnect(); plot?.destroy(); };
  return box;
}

function plotSummary(title, lines) {
  const ends = lines.slice(0, 5).map((line) => `${line.label} ends at ${numberText(line.values.at(-1))}`);
  return `${title} over steps: ${ends.join("; ")}`;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// axes: [{title, value(row)}], rows; `best` is drawn thick. Columns of texts have one place a text.
export function parallel(axes, rows, { best, label, open }) {
  const box = h("div", { class: "parallel", role: "img", "aria-label": label });
  const draw = (width) => {
    const height = 280;
    const top = 34;
    const bottom = 24;
    const left = 56;
    const gap = axes.length > 1 ? (width - 2 * left) / (axes.length - 1) : 0;
    const scales = axes.map(({ value }) => scaleOf(rows.map(value), top, height - bottom));
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    const line = (row) => axes.map((axis, i) => {
      const y = scales[i].place(axis.value(row));
      return y === null ? null : `${left + i * gap},${y}`;
    });
    const ordered = rows.filter((row) => row !== best).slice(0, 2000);
    if (best) ordered.push(best);
    for (const row of ordered) {
      const points = line(row).filter(Boolean);
      if (points.length < 2) continue;
      const path = svg("polyline", { points: points.join(" "), class: row === best ? "pc best" : "pc" });
      path.append(svg("title", {}, axes.map((axis) => `${axis.title}: ${visible(axis.value(row) ?? "")}`).join("\n")));
      if (open) path.addEventListener("click", () => open(row));
      root.append(path);
    }
    axes.forEach((axis, i) => {
      const x = left + i * gap;
      root.append(svg("line", { x1: x, x2: x, y1: top, y2: height - bottom, class: "axis" }));
      root.append(svg("text", { x, y: 16, class: "axis-title", "text-anchor": "middle" }, clipTo(axis.title, Math.max(8, gap / 8))));
      const isLast = i === axes.length - 1 && i > 0;
      for (const [text, y] of scales[i].ticks) root.append(svg("text", { x: isLast ? x - 6 : x + 6, y: y + (y === top ? 14 : -6), class: "tick", "text-anchor": isLast ? "end" : "start" }, clipTo(text, 14)));
    });
    box.textContent = "";
    box.append(root);
  };
  const observer = new ResizeObserver(([entry]) => draw(Math.max(Math.floor(entry.contentRect.width), axes.length * 84)));
  observer.observe(box);
  box.close = () => observer.disconnect();
  return box;
}

function clipTo(text, length) {
  const shown = visible(text);
  return shown.length > length ? `${shown.slice(0, Math.floor(length) - 1)}…` : shown;
}

function scaleOf(values, top, bottom) {
  const present = values.filter((value) => value !== null && value !== undefined && value !== "");
  if (present.length && present.every((value) => typeof value === "number")) {
    const low = Math.min(...present);
    const high = Math.max(...present);
    const isLog = low > 0 && high >= 100 * low;
    const f = isLog ? Math.log : (value) => value;
    const range = f(high) - f(low) || 1;
    const place = (value) => (typeof value === "number" ? bottom - ((f(value) - f(low)) / range) * (bottom - top) : null);
    return { place, ticks: low === high ? [[numberText(low), bottom]] : [[numberText(low), bottom], [numberText(high), top]] };
  }
  const names = [...new Set(present.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const gap = names.length > 1 ? (bottom - top) / (names.length - 1) : 0;
  const at = new Map(names.map((name, i) => [name, bottom - i * gap]));
  return { place: (value) => at.get(String(value)) ?? null, ticks: names.slice(0, 12).map((name) => [name, at.get(name)]) };
}
