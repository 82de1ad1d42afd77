// Cancel, delete and rerun: only offered if the server allows actions.
import { h, confirmDialog, toast, visible } from "./dom.js";
import { post } from "./net.js";

async function actOn(action, rows, more) {
  for (const row of rows) {
    try {
      const done = await post("api/action", { action, handle: row.handle, ...more });
      toast(action === "rerun" ? `Submitted ${done.handle}` : `${action === "cancel" ? "Cancelled" : "Deleted"} ${row.handle}`);
      if (action === "rerun") return done.handle;
    } catch (error) {
      toast(error.message, "bad");
    }
  }
  return null;
}

function handlesOf(rows) {
  return h("ul", { class: "handles" }, rows.slice(0, 10).map((row) => h("li", { class: "mono" }, visible(row.handle))), rows.length > 10 ? h("li", {}, `and ${rows.length - 10} more`) : null);
}

export async function cancelJobs(rows) {
  const sure = await confirmDialog(rows.length === 1 ? "Cancel this job?" : `Cancel ${rows.length} jobs?`, handlesOf(rows), rows.length === 1 ? "Cancel the job" : "Cancel the jobs", "danger");
  if (sure) await actOn("cancel", rows);
  return sure;
}

export async function deleteJobs(rows) {
  const content = h("div", {}, handlesOf(rows), h("p", {}, "Their records and logs are deleted, too."));
  const sure = await confirmDialog(rows.length === 1 ? "Delete this job?" : `Delete ${rows.length} jobs?`, content, "Delete", "danger");
  if (sure) await actOn("delete", rows);
  return sure;
}

// The arguments are fields, so that a new run with one other value takes a few keystrokes.
export async function rerunJob(row, definition) {
  const fields = [];
  for (const role of definition?.roles || []) {
    const add = (path, value) => fields.push({ path: `${role.name}.${path}`, value: String(value), input: h("input", { value: String(value), spellcheck: false }) });
    add("num_replicas", role.num_replicas);
    (role.args || []).forEach((value, i) => add(`args.${i}`, value));
    for (const [name, value] of Object.entries(role.env || {})) add(`env.${name}`, value);
  }
  const content = h("div", {},
    h("p", {}, "The job is submitted again with these values. The workspace is uploaded with its present files."),
    h("div", { class: "fields" }, fields.map((f) => h("label", {}, h("span", { class: "mono clip", title: visible(f.path) }, visible(f.path)), f.input))));
  if (!(await confirmDialog("Run this job again", content, "Submit"))) return null;
  const changed = fields.filter((f) => f.input.value !== f.value).map((f) => `${f.path}=${f.input.value}`);
  return actOn("rerun", [row], { set: changed });
}

export function actionButtons(selected, done) {
  const run = (action) => async () => {
    const rows = selected();
    if (rows.length && (await action(rows))) { done(); update(); }
  };
  const cancel = h("button", { onclick: run(cancelJobs), disabled: true }, "Cancel…");
  const remove = h("button", { onclick: run(deleteJobs), disabled: true }, "Delete…");
  const update = () => { cancel.disabled = remove.disabled = selected().length === 0; };
  return { element: h("span", { class: "group" }, cancel, remove), update };
}
