// The dialog of one cell: the stacks of its running calls, and the state of its records.
import { cellOf } from "./ask.js";
import { make, say } from "./dom.js";
import { RecordsTable } from "./records.js";
import { count, duration, nameOf } from "./words.js";

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
  open(worker, name, rest) {
    this.place = { worker, name, rest };
    this.records = new RecordsTable(this.place, () => this.redraw());
    this.shown = "";
    this.last = null;
    say(this.title, nameOf(name));
    this.body.replaceChildren(make("p", { text: "Loading …" }));
    if (!this.dialog.open) this.dialog.showModal();
    this.refresh();
  }

  async refresh() {
    clearTimeout(this.timer);
    const place = this.place;
    let found;
    try {
      found = await cellOf(place.worker, place.name, place.rest);
    } catch (error) {
      found = { error: error.message };
    }
    if (place !== this.place || !this.dialog.open) return;
    const text = JSON.stringify(found);
    // Keep a selection, which the user may want to copy.
    if (text !== this.shown && !this.isMarked()) {
      this.found = found;
      this.redraw();
      this.shown = text;
    }
    if (found !== null) this.timer = setTimeout(() => this.refresh(), AGAIN_MS);
  }

  isMarked() {
    const selection = getSelection();
    return !selection.isCollapsed && this.body.contains(selection.anchorNode);
  }

  // Redraws the dialog; focus and scroll positions stay.
  redraw() {
    const kept = document.activeElement?.dataset?.keep;
    const scrolled = new Map([...this.body.querySelectorAll("pre[data-keep]")].map((each) => [each.dataset.keep, [each.scrollLeft, each.scrollTop]]));
    const top = this.dialog.scrollTop;
    this.show(this.found);
    this.dialog.scrollTop = top;
    for (const each of this.body.querySelectorAll("[data-keep]")) {
      const [left, down] = scrolled.get(each.dataset.keep) ?? [0, 0];
      if (left || down) each.scrollTo(left, down);
      if (each.dataset.keep === kept) each.focus({ preventScroll: true });
    }
  }

  show(cell) {
    if (cell === null) {
      const gone = "The cell has slid out of the window because all of its records are finished, or the partition has moved to another member.";
      const was = this.last ? [make("p", { text: "Its last state:" }), ...this.partsOf(this.last)] : [];
      this.body.replaceChildren(make("p", { text: gone, role: "status" }), ...was);
      return;
    }
    if (cell.error !== undefined) {
      this.body.replaceChildren(make("p", { text: cell.error, role: "alert" }));
      return;
    }
    if (this.place.rest.startsWith("records/")) this.place.rest = `cells/${cell.number}`;
    say(this.title, `${nameOf(this.place.name)} · offsets ${cell.first_offset} to ${cell.last_offset} · ${count(cell.open)} of ${count(cell.count)} open`);
    this.last = cell;
    this.body.replaceChildren(...this.partsOf(cell));
  }

  partsOf(cell) {
    const parts = [];
    if (cell.hovering_s >= 1) parts.push(make("p", { text: `No progress for ${duration(cell.hovering_s)}.` }));
    for (const call of cell.calls) {
      const given = call.abandoned ? ", abandoned" : "";
      const where = call.process ? ` in process ${call.process}` : "";
      parts.push(make("h3", { text: `Offset ${call.offset}, attempt ${call.attempt}, running for ${duration(call.seconds)}${given}${where}; stack:` }));
      parts.push(make("pre", { text: dedented(call.stack), tabindex: 0, "data-keep": `stack ${call.offset}` }));
    }
    parts.push(make("h3", { text: cell.records.length < cell.count ? `The first ${cell.records.length} of its ${count(cell.count)} records` : "Its records" }));
    parts.push(this.records.draw(cell));
    return parts;
  }
}

function dedented(stack) {
  return stack.replace(/^ {2}/gm, "").trimEnd();
}
