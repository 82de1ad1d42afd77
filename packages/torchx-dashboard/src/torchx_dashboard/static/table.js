// A table that draws only the visible rows, with sorting, a keyboard cursor and selection.
import { h, replace, whenReleased } from "./dom.js";

const ROW = 38;
let tables = 0;

export class Table {
  // columns: {id, title, value(row), cell(row), width, numeric, from}: `from` is the smallest width
  // of the table, in pixels, at which the column is shown.
  constructor({ columns, label, key, open, selectable, sort, descending, none }) {
    Object.assign(this, { columns, label, key, open, none });
    this.selected = selectable ? new Set() : null;
    this.sort = sort;
    this.descending = Boolean(descending);
    this.rows = [];
    this.shown = [];
    this.cursor = -1;
    this.prefix = `t${++tables}`;
    this.nodes = [];
    this.drawNow = () => this.drawRows();
    this.head = h("div", { class: "thead", role: "row" });
    this.body = h("div", { class: "tbody", role: "presentation" });
    this.message = h("div", { class: "tmessage", hidden: true });
    this.scroller = h(
      "div",
      { class: "tscroll", role: "grid", tabindex: "0", "aria-label": label, onscroll: this.drawNow, onkeydown: (e) => this.keydown(e), onfocus: () => this.focused() },
      h("div", { role: "rowgroup", class: "theadgroup" }, this.head),
      h("div", { role: "rowgroup", class: "tbodygroup" }, this.body),
    );
    this.element = h("div", { class: "table" }, this.scroller, this.message);
    this.observer = new ResizeObserver(() => this.layout());
    this.observer.observe(this.element);
  }

  close() {
    this.observer.disconnect();
  }

  setColumns(columns) {
    this.columns = columns;
    this.layout();
  }

  setRows(rows, message) {
    this.rows = rows;
    this.update(message);
  }

  update(message) {
    const column = this.columns.find((c) => c.id === this.sort);
    this.shown = this.rows;
    if (column) {
      const keyed = this.rows.map((row) => [column.value(row), row]);
      keyed.sort((a, b) => compare(a[0], b[0], this.descending));
      this.shown = keyed.map((pair) => pair[1]);
    }
    if (this.cursorKey !== undefined) {
      const index = this.shown.findIndex((row) => this.key(row) === this.cursorKey);
      this.cursor = index < 0 ? Math.min(this.cursor, this.shown.length - 1) : index;
    }
    this.message.hidden = this.shown.length > 0;
    if (!this.shown.length) replace(this.message, message || this.none);
    this.scroller.setAttribute("aria-rowcount", String(this.shown.length + 1));
    this.draw();
  }

  layout() {
    const width = this.element.clientWidth;
    this.visible = this.columns.filter((c) => !c.from || width >= c.from);
    const widths = this.visible.map((c) => c.width || "minmax(90px, 1fr)");
    if (this.selected) widths.unshift("36px");
    this.element.style.setProperty("--columns", widths.join(" "));
    const heads = this.visible.map((column) => {
      const sorted = column.id === this.sort;
      const direction = sorted ? (this.descending ? "descending" : "ascending") : "none";
      return h("div", { role: "columnheader", "aria-sort": direction, class: column.numeric ? "numeric" : "" },
        h("button", { class: "sort", title: column.title, onclick: () => this.sortBy(column) },
          h("span", { class: "clip" }, column.title),
          h("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (this.descending ? "↓" : "↑") : ""),
        ));
    });
    if (this.selected) heads.unshift(h("div", { role: "columnheader" }, h("span", { class: "hidden" }, "Selected")));
    replace(this.head, heads);
    this.nodes = [];
    replace(this.body);
    this.draw();
  }

  sortBy(column) {
    this.descending = this.sort === column.id ? !this.descending : Boolean(column.numeric);
    this.sort = column.id;
    this.update();
    this.layout();
    this.head.querySelector('[aria-sort="ascending"] button, [aria-sort="descending"] button')?.focus();
  }

  draw() {
    whenReleased(this.drawNow);
  }

  drawRows() {
    if (!this.visible) return;
    this.body.style.height = `${this.shown.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 4);
    const last = Math.min(this.shown.length, first + Math.ceil(this.scroller.clientHeight / ROW) + 8);
    const count = Math.max(0, last - first);
    while (this.nodes.length < count) {
      const node = h("div", { class: "trow", role: "row" });
      this.nodes.push(node);
      this.body.append(node);
    }
    while (this.nodes.length > count) this.nodes.pop().remove();
    for (let i = 0; i < count; i++) this.drawRow(this.nodes[(first + i) % count], first + i);
    const isDrawn = this.cursor >= first && this.cursor < last;
    this.scroller[isDrawn ? "setAttribute" : "removeAttribute"]("aria-activedescendant", `${this.prefix}-${this.cursor}`);
  }

  drawRow(node, index) {
    const row = this.shown[index];
    node.id = `${this.prefix}-${index}`;
    node.style.transform = `translateY(${index * ROW}px)`;
    node.setAttribute("aria-rowindex", String(index + 2));
    const selected = this.selected?.has(this.key(row));
    node.className = `trow${index === this.cursor ? " cursor" : ""}${selected ? " selected" : ""}`;
    const cells = this.visible.map((column) => h("div", { role: "gridcell", class: column.numeric ? "numeric" : "" }, column.cell(row)));
    if (this.selected) {
      node.setAttribute("aria-selected", String(Boolean(selected)));
      cells.unshift(h("div", { role: "gridcell", class: "pick" },
        h("input", { type: "checkbox", tabindex: "-1", "aria-label": `Select ${this.key(row)}`, checked: Boolean(selected), onclick: (event) => { event.stopPropagation(); this.toggle(row); } })));
    }
    replace(node, cells);
    node.onclick = (event) => {
      if (event.target.closest("a, button, input") || getSelection()?.toString()) return;
      this.cursor = index;
      this.cursorKey = this.key(row);
      this.open?.(row);
    };
  }

  toggle(row) {
    const key = this.key(row);
    if (!this.selected.delete(key)) this.selected.add(key);
    this.onselect?.();
    this.draw();
  }

  // The first visible row, because a scroll would move the row under the pointer that set the focus.
  focused() {
    if (this.cursor < 0 && this.shown.length) this.move(Math.ceil(this.scroller.scrollTop / ROW));
  }

  move(index) {
    this.cursor = Math.max(0, Math.min(index, this.shown.length - 1));
    this.cursorKey = this.key(this.shown[this.cursor]);
    const top = this.cursor * ROW;
    const height = this.scroller.clientHeight - ROW;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW > this.scroller.scrollTop + height) this.scroller.scrollTop = top + ROW - height;
    this.draw();
  }

  keydown(event) {
    if (event.target !== this.scroller || !this.shown.length) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.shown.length, End: this.shown.length };
    if (event.key in steps && !event.ctrlKey && !event.metaKey) this.move(this.cursor + steps[event.key]);
    else if (event.key === "Enter" && this.cursor >= 0) this.open?.(this.shown[this.cursor]);
    else if (event.key === " " && this.selected && this.cursor >= 0) this.toggle(this.shown[this.cursor]);
    else return;
    event.preventDefault();
  }
}

function compare(a, b, descending) {
  const noA = a === null || a === undefined || a === "";
  const noB = b === null || b === undefined || b === "";
  if (noA || noB) return noA - noB; // Rows without a value are last in both directions.
  const numbers = typeof a === "number" && typeof b === "number";
  const order = numbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}
