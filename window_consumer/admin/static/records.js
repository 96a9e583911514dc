// The table of a cell's records, with headers, and with values on request.
import { intervene, valueOf } from "./ask.js";
import { make } from "./dom.js";
import { count, duration } from "./words.js";

const COLUMNS = ["offset", "state", "key", "attempts", "last error", "next call", "headers, value", "action"];
const NUMBERS = new Set(["offset", "attempts"]);
const SURE_MS = 4000;
const INTERVENTIONS = {
  skip: { ask: "Skip", sure: "Really skip? No copy is kept", done: "skipped" },
  "dead-letter": { ask: "Dead letter", sure: "Really send it to the dead-letter topic?", done: "in the dead-letter topic" },
};
const NO_VALUE = "Values are not shown here: admin.values is false.";
const FORMS = { json: "JSON", text: "text", binary: "binary", null: "null, a tombstone", hidden: "hidden" };

export class RecordsTable {
  // `redraw` is called when the user expands or collapses something.
  constructor(place, redraw) {
    this.place = place;
    this.redraw = redraw;
    this.opened = new Map(); // offset -> whether the user opened or closed it
    this.values = new Map(); // offset -> the value in the response
    this.sure = null; // the button that awaits confirmation
    this.said = null; // the result of the last intervention
  }

  draw(cell) {
    const held = cell.records.filter((each) => each.bytes !== null);
    this.alone = held.length === 1 ? held[0].offset : null;
    const head = make("tr", {}, ...COLUMNS.map((text) => make("th", { text, scope: "col", cls: NUMBERS.has(text) ? "number" : "" })));
    const rows = runsOf(cell.records).flatMap((each) => this.rowsOf(each, cell.values));
    const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
    return this.said ? make("div", {}, make("p", this.said), table) : table;
  }

  isOpen(offset) {
    return this.opened.get(offset) ?? offset === this.alone;
  }

  rowsOf(each, mayShow) {
    const row = make("tr", {},
      make("td", { cls: "number", text: each.to > each.offset ? `${each.offset} – ${each.to}` : String(each.offset) }),
      make("td", { text: each.running_s === null ? each.state : `${each.state}, ${duration(each.running_s)}` }),
      make("td", { cls: each.key ? "key" : "" }, make("code", { text: each.key ?? "" })),
      make("td", { cls: "number", text: each.attempts ? String(each.attempts) : "" }),
      make("td", { cls: each.error ? "error" : "", text: each.error }),
      make("td", { text: each.due_s === null ? "" : each.due_s ? `in ${duration(each.due_s)}` : "due" }),
      make("td", {}, ...(each.bytes === null ? [] : [this.opener(each)])),
      make("td", {}, ...this.buttonsOf(each)));
    if (each.bytes === null || !this.isOpen(each.offset)) return [row];
    row.classList.add("opened");
    const more = make("td", { colspan: COLUMNS.length }, this.headersOf(each), this.valueOf(each, mayShow));
    return [row, make("tr", { cls: "more" }, more)];
  }

  // Only a failed record that waits can be skipped or dead-lettered.
  buttonsOf(each) {
    if (each.bytes === null || !each.error || each.running_s !== null) return [];
    return Object.entries(INTERVENTIONS).map(([wanted, words]) => {
      const isSure = this.sure === `${wanted} ${each.offset}`;
      const button = make("button", { type: "button", cls: isSure ? "sure operate" : "quiet operate", text: isSure ? words.sure : words.ask, "aria-label": `Offset ${each.offset}: ${isSure ? words.sure : words.ask}`, "data-keep": `${wanted} ${each.offset}` });
      button.addEventListener("click", () => this.press(each.offset, wanted, isSure));
      return button;
    });
  }

  async press(offset, wanted, isSure) {
    clearTimeout(this.calming);
    this.sure = isSure ? null : `${wanted} ${offset}`;
    if (isSure) {
      this.said = { role: "status", text: `Offset ${offset}: waiting …` };
    } else {
      this.calming = setTimeout(() => { this.sure = null; this.redraw(); }, SURE_MS);
    }
    this.redraw();
    if (!isSure) return;
    try {
      await intervene(this.place.worker, this.place.name, offset, wanted);
      this.said = { role: "status", text: `Offset ${offset} is ${INTERVENTIONS[wanted].done}.` };
    } catch (error) {
      this.said = { role: "alert", cls: "error", text: `Offset ${offset}: ${error.message}` };
    }
    this.redraw();
  }

  opener(each) {
    const isOpen = this.isOpen(each.offset);
    const headers = each.headers.length + each.more_headers;
    const what = `${headers} ${headers === 1 ? "header" : "headers"}, ${count(each.bytes)} B`;
    const button = make("button", { type: "button", cls: "quiet", text: `${isOpen ? "▾" : "▸"} ${what}`, "aria-expanded": String(isOpen), "aria-label": `Offset ${each.offset}: ${what}`, "data-keep": `open ${each.offset}` });
    button.addEventListener("click", () => {
      this.opened.set(each.offset, !isOpen);
      this.redraw();
    });
    return button;
  }

  headersOf(each) {
    if (!each.headers.length) return make("p", { cls: "hint", text: "No headers." });
    const list = make("dl", { cls: "headers" }, ...each.headers.flatMap(([name, text]) => [
      make("dt", { text: name }), make("dd", text === null ? { cls: "hint", text: "null" } : { text })]));
    if (!each.more_headers) return list;
    return make("div", {}, list, make("p", { cls: "hint", text: `and ${count(each.more_headers)} more headers` }));
  }

  valueOf(each, mayShow) {
    if (!mayShow) return make("p", { cls: "hint", text: NO_VALUE });
    const value = this.values.get(each.offset);
    if (value === undefined) {
      const button = make("button", { type: "button", text: "Show the value", "data-keep": `value ${each.offset}` });
      button.addEventListener("click", () => this.ask(each.offset));
      return make("p", {}, button);
    }
    if (value.error) return make("p", { cls: "error", role: "alert", text: value.error });
    const title = `Value: ${FORMS[value.form] ?? value.form}, ${count(value.bytes)} bytes${value.is_cut ? ", truncated" : ""}`;
    if (value.form === "hidden") return make("p", { cls: "hint", text: `${title}: ${value.text}` });
    const parts = [make("p", { cls: "hint", text: title })];
    if (value.form !== "null") parts.push(make("pre", { cls: "value", tabindex: 0, text: value.text, "data-keep": `shown ${each.offset}`, "aria-label": `Value of offset ${each.offset}` }));
    return make("div", {}, ...parts);
  }

  async ask(offset) {
    try {
      const value = await valueOf(this.place.worker, this.place.name, offset);
      this.values.set(offset, value ?? { error: "The record has finished, and its value is no longer held." });
    } catch (error) {
      this.values.set(offset, { error: error.message });
    }
    this.redraw();
    document.querySelector(`[data-keep="shown ${offset}"]`)?.focus();
  }
}

// Merges adjacent finished records with the same outcome into one line.
function runsOf(records) {
  const runs = [];
  for (const each of records) {
    const last = runs.at(-1);
    const isPlain = each.bytes === null;
    if (last && isPlain && last.isPlain && last.state === each.state && last.to + 1 === each.offset) last.to = each.offset;
    else runs.push({ ...each, isPlain, to: each.offset });
  }
  return runs;
}
