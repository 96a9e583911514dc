// One cell: where its running calls stand, and what its records wait for.
import { cellOf } from "./ask.js";
import { make, say } from "./dom.js";
import { count, duration } from "./words.js";

const AGAIN_MS = 1000;

export class Details {
  constructor() {
    this.dialog = document.getElementById("details");
    this.title = document.getElementById("details-title");
    this.body = document.getElementById("details-body");
    this.timer = null;
    this.shown = "";
    document.getElementById("details-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => clearTimeout(this.timer));
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  // `rest` is cells/NUMBER or records/OFFSET.
  open(worker, partition, rest) {
    this.place = { worker, partition, rest };
    this.shown = "";
    say(this.title, `${partition.topic}[${partition.partition}]`);
    this.body.replaceChildren(make("p", { text: "Asking …" }));
    if (!this.dialog.open) this.dialog.showModal();
    this.refresh();
  }

  async refresh() {
    clearTimeout(this.timer);
    const place = this.place;
    let found;
    try {
      found = await cellOf(place.worker, place.partition, place.rest);
    } catch (error) {
      found = { error: error.message };
    }
    if (place !== this.place || !this.dialog.open) return;
    const text = JSON.stringify(found);
    if (text !== this.shown) this.show(found);
    this.shown = text;
    if (found !== null) this.timer = setTimeout(() => this.refresh(), AGAIN_MS);
  }

  show(cell) {
    const { topic, partition } = this.place.partition;
    if (cell === null) {
      this.body.replaceChildren(make("p", { text: "It has slid out of the window: all of its records are finished. Or the partition has moved to another member." }));
      return;
    }
    if (cell.error !== undefined) {
      this.body.replaceChildren(make("p", { text: cell.error, role: "alert" }));
      return;
    }
    if (this.place.rest.startsWith("records/")) this.place.rest = `cells/${cell.number}`;
    say(this.title, `${topic}[${partition}] · offsets ${cell.first_offset} to ${cell.last_offset} · ${count(cell.open)} of ${count(cell.count)} open`);
    const parts = [];
    if (cell.hovering_s >= 1) parts.push(make("p", { text: `Nothing has become of it for ${duration(cell.hovering_s)}.` }));
    for (const call of cell.calls) {
      const given = call.abandoned ? ", given up" : "";
      const where = call.process ? ` in the process ${call.process}` : "";
      parts.push(make("h3", { text: `Offset ${call.offset}, attempt ${call.attempt}, running for ${duration(call.seconds)}${given}${where}; it stands at` }));
      parts.push(make("pre", { text: dedented(call.stack), tabindex: 0 }));
    }
    parts.push(make("h3", { text: cell.records.length < cell.count ? `The first ${cell.records.length} of its ${count(cell.count)} records` : "Its records" }));
    parts.push(recordsTable(cell.records));
    const scroll = this.dialog.scrollTop;
    this.body.replaceChildren(...parts);
    this.dialog.scrollTop = scroll;
  }
}

function dedented(stack) {
  return stack.replace(/^ {2}/gm, "").trimEnd();
}

// Finished records in a row that have the same end become one line.
function runsOf(records) {
  const runs = [];
  for (const each of records) {
    const last = runs.at(-1);
    const isPlain = each.key === null && !each.error && !each.attempts && each.state !== "waiting";
    if (last && isPlain && last.isPlain && last.state === each.state && last.to + 1 === each.offset) last.to = each.offset;
    else runs.push({ ...each, isPlain, to: each.offset });
  }
  return runs;
}

function recordsTable(records) {
  const head = make("tr", {}, ...["offset", "state", "key", "attempts", "last error", "next call"].map((text) => make("th", { text, scope: "col" })));
  const rows = runsOf(records).map((each) => make("tr", {},
    make("td", { cls: "number", text: each.to > each.offset ? `${each.offset} – ${each.to}` : String(each.offset) }),
    make("td", { text: each.running_s === null ? each.state : `${each.state}, ${duration(each.running_s)}` }),
    make("td", {}, make("code", { text: each.key ?? "" })),
    make("td", { cls: "number", text: each.attempts ? String(each.attempts) : "" }),
    make("td", { cls: "error", text: each.error }),
    make("td", { text: each.due_s === null ? "" : each.due_s ? `in ${duration(each.due_s)}` : "due" })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}
