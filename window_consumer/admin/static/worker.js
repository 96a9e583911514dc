// One worker: problems, figures, charts, and the window of each of its partitions.
import { decideBreaker, halt } from "./ask.js";
import { Strip } from "./cells.js";
import { CHARTS, Chart } from "./charts.js";
import { make, say } from "./dom.js";
import { OUTCOMES } from "./outcomes.js";
import { ParkedKeys } from "./parked.js";
import { Shares } from "./shares.js";
import { troublesOf } from "./troubles.js";
import { count, duration, nameOf, rate, share } from "./words.js";

const KEPT_MS = 600_000;
const SURE_MS = 4000;
const LATE_S = 60;

const FIGURES = [
  ["lag", (w, s) => [count(s?.lag), "records"]],
  ["oldest record", (w, s) => [duration(s?.lag_s ?? null), ""]],
  ["rate", (w, s) => [`${rate(s?.rate)} /s`, ""]],
  ["call duration, p50", (w, s) => [duration(s?.p50_s ?? null), s?.p99_s ? `p99 ${duration(s.p99_s)}` : ""]],
  ["slots busy", ({ snapshot }, s) => [count(s?.busy), `of ${snapshot.limit ? snapshot.limit.limit : snapshot.slots}`]],
  ["time to drain", (w) => (w.stands_still ? ["∞", "no progress"] : [duration(w.time_to_drain_s), ""])],
  ["processed", ({ snapshot: { counters } }) => [count(counters.processed), besideDone(counters)]],
  ["retried", ({ snapshot: { counters } }) => [count(counters.retried), counted(counters.moved_to)]],
  ["dead letters", ({ snapshot: { counters } }) => [count(counters.dead_lettered), counted(counters.dead_by)]],
  ["breaker", ({ snapshot: { breaker } }) => [breaker.state, breaker.failed ? `${share(breaker.failed / breaker.calls)} failed` : ""]],
];

// Outcomes that count like processed records, once there are any.
function besideDone(counters) {
  return OUTCOMES.filter((each) => each.beside_done && counters[each.counter])
    .map((each) => `${count(counters[each.counter])} ${each.words}`)
    .join(", ");
}

// Counts by level or reason, the largest first.
function counted(by) {
  return Object.entries(by)
    .sort(([, one], [, other]) => other - one)
    .slice(0, 4)
    .map(([name, number]) => `${name} ${count(number)}`)
    .join(", ");
}

export class WorkerView {
  constructor(details, tell) {
    this.details = details;
    this.tell = tell;
    this.samples = [];
    this.rows = new Map();
    this.title = make("h2");
    this.chip = make("span", { cls: "chip" });
    this.about = make("span", { cls: "about" });
    this.pause = make("button", { type: "button", cls: "operate" });
    this.pause.addEventListener("click", () => this.pauseAll());
    this.release = make("button", { type: "button", cls: "operate", text: "Release held records" });
    this.release.hidden = true;
    this.release.addEventListener("click", () => this.releaseHeld());
    this.troubles = make("ul", { cls: "troubles", "aria-label": "Problems" });
    this.figures = FIGURES.map(([name]) => {
      const value = make("dd");
      return { element: make("div", {}, make("dt", { text: name }), value), value };
    });
    this.span = make("p", { cls: "span" });
    this.charts = CHARTS.map((about) => new Chart(about));
    this.parked = new ParkedKeys();
    this.shares = new Shares();
    this.body = make("tbody");
    const head = ["partition", "from offset", "window: start cell left, end cell right", "lag", "oldest", "open", "", ""];
    const classes = ["", "number optional", "", "number", "number", "number optional", "", ""];
    this.table = make("table", { cls: "windows" },
      make("caption", { cls: "spoken", text: "The window of each partition. Arrow keys move between cells, Enter opens one." }),
      make("thead", {}, make("tr", {}, ...head.map((text, index) => make("th", { text, scope: "col", cls: classes[index] })))),
      this.body);
    this.element = make("section", { cls: "worker" },
      make("header", {}, this.title, this.chip, this.about, this.release, this.pause),
      this.troubles,
      make("dl", { cls: "figures" }, ...this.figures.map((each) => each.element)),
      this.span,
      make("div", { cls: "charts" }, ...this.charts.map((each) => each.element)),
      this.parked.element,
      this.shares.element,
      this.table);
  }

  update(worker, now, theme) {
    this.worker = worker;
    this.theme = theme;
    say(this.title, worker.process ? `${worker.name} · process ${worker.process}` : worker.name);
    const windows = worker.snapshot;
    say(this.about, `${worker.group ? `group ${worker.group}` : "all partitions, no group"} · handler ${worker.handlers.join(", ")}${windows?.limit ? ` · concurrency ${windows.limit.limit}: ${windows.limit.why}` : ""}`);
    this.updateChip(worker);
    this.updateTroubles(troublesOf(worker));
    this.addSamples(worker.history, now);
    if (!windows) return;
    this.updatePause(windows);
    const last = this.samples.at(-1);
    FIGURES.forEach(([, write], index) => this.updateFigure(this.figures[index].value, write(worker, last)));
    this.parked.update(windows.parked);
    this.shares.update(windows.shares);
    this.updateRows(windows.partitions);
  }

  updateChip(worker) {
    const windows = worker.snapshot;
    const state = !windows ? ["silent", "bad"] : windows.halted ? ["paused", "warn"] : worker.ready ? ["running", "good"] : [worker.phase, "warn"];
    say(this.chip, state[0]);
    this.chip.className = `chip ${state[1]}`;
  }

  updateFigure(element, [value, unit]) {
    const key = `${value}|${unit}`;
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    element.replaceChildren(value, " ", make("small", { text: unit }));
  }

  async releaseHeld() {
    if (!this.sureToRelease) {
      this.sureToRelease = setTimeout(() => this.calmRelease(), SURE_MS);
      this.release.classList.add("sure");
      say(this.release, "Really release? What fails again leaves");
      return;
    }
    clearTimeout(this.sureToRelease);
    this.calmRelease();
    try {
      await decideBreaker(this.worker, "release");
      this.tell(`${this.worker.name}: records that failed leave when they fail again`);
    } catch (error) {
      this.tell(`${this.worker.name} could not release them: ${error.message}`, true);
    }
  }

  calmRelease() {
    this.sureToRelease = null;
    this.release.classList.remove("sure");
    say(this.release, "Release held records");
  }

  updatePause(windows) {
    this.release.hidden = !["holding", "open", "overload"].includes(windows.breaker.state);
    if (this.sure) return;
    say(this.pause, windows.halted ? "Resume worker" : "Pause worker");
  }

  async pauseAll() {
    const halted = !this.worker.snapshot?.halted;
    if (halted && !this.sure) {
      this.sure = setTimeout(() => this.calmDown(), SURE_MS);
      this.pause.classList.add("sure");
      say(this.pause, "Really pause? No new calls start");
      return;
    }
    clearTimeout(this.sure);
    this.calmDown();
    await this.halt(null, halted);
  }

  calmDown() {
    this.sure = null;
    this.pause.classList.remove("sure");
    if (this.worker.snapshot) this.updatePause(this.worker.snapshot);
  }

  async halt(name, halted) {
    const what = name ? nameOf(name) : this.worker.name;
    try {
      await halt(this.worker, name, halted);
      this.tell(`${what} is ${halted ? "paused" : "resumed"}`);
    } catch (error) {
      this.tell(`${what} could not be ${halted ? "paused" : "resumed"}: ${error.message}`, true);
    }
  }

  updateTroubles(found) {
    while (this.troubles.children.length > found.length) this.troubles.lastChild.remove();
    found.forEach((trouble, index) => {
      let item = this.troubles.children[index];
      if (!item) {
        const button = make("button", { type: "button" }, make("b"), make("span"));
        item = make("li", {}, button);
        button.addEventListener("click", () => this.openTrouble(item.trouble));
        this.troubles.append(item);
      }
      const button = item.firstChild;
      item.trouble = trouble;
      button.classList.toggle("bad", Boolean(trouble.bad));
      button.disabled = !trouble.name;
      say(button.firstChild, trouble.what);
      say(button.lastChild, trouble.text);
    });
  }

  openTrouble({ name, rest }) {
    this.details.open(this.worker, name, rest);
  }

  addSamples(samples, now) {
    const last = this.samples.at(-1)?.t ?? 0;
    const fresh = samples.filter((sample) => sample.t > last);
    if (!fresh.length && this.chartsDrawn) return;
    this.chartsDrawn = true;
    this.samples = [...this.samples, ...fresh].filter((sample) => now - sample.t <= KEPT_MS);
    const since = Math.max(60_000, now - (this.samples[0]?.t ?? now));
    say(this.span, `The last ${Math.round(since / 60_000)} min`);
    for (const chart of this.charts) chart.draw(this.samples, now, since);
  }

  updateRows(partitions) {
    const seen = new Set();
    let width = 0;
    for (const partition of partitions) {
      const name = nameOf(partition.name);
      seen.add(name);
      let row = this.rows.get(name);
      if (!row) this.rows.set(name, (row = new Row(this, partition)));
      width ||= row.room();
      row.update(partition, width, this.theme);
    }
    for (const [name, row] of this.rows) {
      if (seen.has(name)) continue;
      row.element.remove();
      this.rows.delete(name);
    }
    partitions.forEach((partition, index) => {
      const row = this.rows.get(nameOf(partition.name));
      if (this.body.children[index] !== row.element) this.body.insertBefore(row.element, this.body.children[index] ?? null);
    });
  }

  neighbour(row, step) {
    const element = step > 0 ? row.element.nextElementSibling : row.element.previousElementSibling;
    return [...this.rows.values()].find((each) => each.element === element);
  }
}

class Row {
  constructor(view, partition) {
    this.view = view;
    this.partition = partition;
    this.cursor = null;
    this.canvas = make("canvas", { tabindex: 0, role: "button" });
    this.strip = new Strip(this.canvas);
    this.clip = make("div", { cls: "clip" }, this.canvas);
    this.cells = { next: make("td", { cls: "number optional" }), lag: make("td", { cls: "number lag" }), age: make("td", { cls: "number lag-s" }), open: make("td", { cls: "number optional" }), flag: make("td", { cls: "flag" }) };
    this.pause = make("button", { type: "button", cls: "quiet operate" });
    this.pause.addEventListener("click", () => view.halt(this.partition.name, !this.partition.halted));
    const full = nameOf(partition.name);
    const level = partition.level === null ? full : `↳ retry after ${partition.level} [${partition.name.partition}]`;
    const name = make("td", { cls: partition.level === null ? "name" : "name level", text: level, title: full });
    this.strip_ = make("td", { cls: "strip" }, this.clip);
    this.element = make("tr", {}, name, this.cells.next, this.strip_, this.cells.lag, this.cells.age, this.cells.open, this.cells.flag, make("td", {}, this.pause));
    this.canvas.addEventListener("click", (event) => this.open(this.strip.cellAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("focus", () => this.move(this.cursor ?? 0));
    this.canvas.addEventListener("blur", () => { this.cursor = null; this.redraw(); });
  }

  room() {
    return Math.max(120, this.clip.clientWidth || 600);
  }

  update(partition, width, theme) {
    this.partition = partition;
    this.width = width;
    this.theme = theme;
    say(this.cells.next, String(partition.next_offset));
    say(this.cells.lag, count(partition.lag.records));
    say(this.cells.age, duration(partition.lag.seconds));
    say(this.cells.open, count(partition.open));
    const [flag, bad] = flagOf(partition);
    say(this.cells.flag, flag);
    this.cells.flag.classList.toggle("bad", bad);
    this.element.classList.toggle("late", partition.lag.seconds >= LATE_S);
    say(this.pause, partition.halted ? "resume" : "pause");
    this.pause.disabled = Boolean(this.view.worker.snapshot.halted);
    const label = `${partition.halted ? "Resume" : "Pause"} ${nameOf(partition.name)}`;
    if (this.pause.getAttribute("aria-label") !== label) this.pause.setAttribute("aria-label", label);
    this.redraw();
  }

  redraw() {
    const { name, row, slid, capacity_cells: cells } = this.partition;
    this.strip.draw(row, slid, cells, this.width, this.cursor, this.theme);
    const label = `${nameOf(name)}, ${row.length} of ${cells} cells: ${summary(row)}`;
    if (this.canvas.getAttribute("aria-label") !== label) this.canvas.setAttribute("aria-label", label);
  }

  move(cursor) {
    this.cursor = Math.max(0, Math.min(cursor, Math.max(0, this.partition.row.length - 1)));
    this.redraw();
    const letter = this.partition.row[this.cursor];
    this.view.tell(letter ? `cell ${this.cursor + 1} of ${this.partition.row.length}: ${NAMES[letter]}` : "no cell");
  }

  press(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.move((this.cursor ?? 0) + steps[event.key]);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const other = this.view.neighbour(this, event.key === "ArrowDown" ? 1 : -1);
      if (other) {
        other.cursor = this.cursor;
        other.canvas.focus();
      }
    } else if (event.key === "Enter" || event.key === " ") this.open(this.cursor ?? 0);
    else return;
    event.preventDefault();
  }

  open(index) {
    if (index < this.partition.row.length) this.view.details.open(this.view.worker, this.partition.name, `cells/${this.partition.slid + index}`);
  }
}

const NAMES = { d: "done", w: "waiting", r: "running", y: "retrying", H: "hovering" };

function summary(row) {
  return Object.entries(NAMES)
    .map(([letter, name]) => [row.split(letter).length - 1, name])
    .filter(([number]) => number)
    .map(([number, name]) => `${number} ${name}`)
    .join(", ") || "empty";
}

function flagOf(partition) {
  if (partition.row[0] === "H") return [`hovers ${duration(partition.hovering_s)}`, true];
  if (partition.halted) return ["paused manually", false];
  if (partition.failed) return [`${count(partition.failed)} failed`, false];
  if (partition.waits_for_rate) return ["rate limit", false];
  if (partition.paused) return ["full", false];
  return ["", false];
}
