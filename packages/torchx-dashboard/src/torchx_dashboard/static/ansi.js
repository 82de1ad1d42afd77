// A line of a log as spans: colours of ANSI sequences, and carriage returns of progress bars.
import { h, visible } from "./dom.js";

// eslint-disable-next-line no-control-regex
const SEQUENCE = /\u001b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;

// A terminal shows only the text after the last carriage return.
export function overwritten(line) {
  if (!line.includes("\r")) return line;
  const parts = line.split("\r");
  for (let i = parts.length - 1; i > 0; i--) if (parts[i] !== "") return parts[i];
  return parts[0];
}

export function plain(line) {
  return overwritten(line).replace(SEQUENCE, "");
}

export function spans(line, found) {
  const text = overwritten(line);
  const pieces = [];
  if (!text.includes("\u001b")) {
    pieces.push([text, ""]);
  } else {
    let style = { classes: new Set(), color: null };
    let last = 0;
    for (const match of text.matchAll(SEQUENCE)) {
      pieces.push([text.slice(last, match.index), className(style), style.color]);
      last = match.index + match[0].length;
      if (match[2] === "m") style = changed(style, match[1]);
    }
    pieces.push([text.slice(last), className(style), style.color]);
  }
  return pieces.filter(([piece]) => piece).map(([piece, classes, color]) => {
    const span = h("span", { class: classes }, marked(visible(piece), found));
    if (color) span.style.color = color;
    return span;
  });
}

function marked(text, found) {
  if (!found) return [text];
  const parts = [];
  let last = 0;
  for (let at = text.indexOf(found); at >= 0 && parts.length < 200; at = text.indexOf(found, last)) {
    parts.push(text.slice(last, at), h("mark", {}, found));
    last = at + found.length;
  }
  return [...parts, text.slice(last)];
}

function className(style) {
  return [...style.classes].join(" ");
}

function changed(style, codes) {
  const classes = new Set(style.classes);
  let color = style.color;
  const drop = (prefix) => classes.forEach((name) => name.startsWith(prefix) && classes.delete(name));
  const numbers = (codes || "0").split(/[;:]/).map(Number);
  for (let i = 0; i < numbers.length; i++) {
    const code = numbers[i];
    if (code === 0) { classes.clear(); color = null; }
    else if (code === 1) classes.add("a-bold");
    else if (code === 2) classes.add("a-dim");
    else if (code === 3) classes.add("a-italic");
    else if (code === 4) classes.add("a-underline");
    else if (code === 22) { classes.delete("a-bold"); classes.delete("a-dim"); }
    else if (code === 23) classes.delete("a-italic");
    else if (code === 24) classes.delete("a-underline");
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) { drop("a-f"); color = null; classes.add(`a-f${code % 10}`); }
    else if (code === 39) { drop("a-f"); color = null; }
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) { drop("a-b"); classes.add(`a-bg${code % 10}`); }
    else if (code === 49) drop("a-bg");
    else if (code === 38 || code === 48) {
      const is256 = numbers[i + 1] === 5;
      const rgb = is256 ? palette(numbers[i + 2]) : numbers.slice(i + 2, i + 5);
      i += is256 ? 2 : 4;
      if (code === 38 && rgb.length === 3 && rgb.every((n) => n >= 0 && n < 256)) { drop("a-f"); color = `rgb(${rgb.join(",")})`; }
    }
  }
  return { classes, color };
}

function palette(n) {
  if (n >= 232) return Array(3).fill(8 + (n - 232) * 10);
  if (n >= 16) return [36, 6, 1].map((d) => Math.floor((n - 16) / d) % 6).map((c) => (c ? 55 + 40 * c : 0));
  return [[0, 0, 0], [205, 49, 49], [13, 188, 121], [190, 150, 0], [36, 114, 200], [188, 63, 188], [17, 150, 180], [130, 130, 130]][n % 8] || [];
}
