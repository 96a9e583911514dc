// Redrives and purges: a dry run first, whose result can be confirmed; and how far they are.
import { make } from "./dom.js";
import { ask } from "./nav.js";
import { count } from "./words.js";

const SOON_MS = 700;
const LATER_MS = 5000;
const post = (path, fields = {}) => ask(`api/dead-letters/${path}`, { method: "POST", body: JSON.stringify(fields), headers: { "content-type": "application/json" } });

const LEFT = [
  ["not_matching", "do not match"], ["resolved_before", "were put back before"], ["guarded", "were put back too often"],
  ["unavailable", "have lost their value"], ["refused", "are too large"],
];

export class LetterJobs {
  constructor(place, tell) {
    this.place = place;
    this.tell = tell;
    this.shown = "";
  }

  // The forms of one topic; `whereOf` returns the condition at the time of a press.
  actions(name, isOurs, whereOf) {
    const forms = [];
    if (isOurs) {
      const rate = make("input", { type: "number", min: "0.001", step: "any", placeholder: "no limit" });
      const restart = make("input", { type: "checkbox" });
      forms.push(form("Try a redrive", make("label", {}, "records per second", rate),
        make("label", { cls: "tick" }, restart, "from the first one again"),
        () => this.start("redrive", { topics: [name], where: whereOf(), rate: rate.value ? Number(rate.value) : null, restart: restart.checked })));
    }
    const before = make("input", { required: true, placeholder: "14d, 2026-11-21 or an offset" });
    const partition = make("input", { type: "number", min: "0", placeholder: "all" });
    forms.push(form("Try a purge", make("label", {}, "what was written before", before), make("label", {}, "partition", partition),
      () => this.start("purge", { topics: [name], before: before.value.trim(), partition: partition.value ? Number(partition.value) : null })));
    return make("details", { cls: "operate" }, make("summary", { text: isOurs ? "Put back or delete" : "Delete" }), ...forms);
  }

  async start(what, fields) {
    try {
      await post(what, fields);
      this.tell("The dry run has started.");
    } catch (error) {
      this.tell(error.message, true);
    }
    this.follow();
  }

  async press(path) {
    try {
      await post(path);
    } catch (error) {
      this.tell(error.message, true);
    }
    this.follow();
  }

  async follow() {
    clearTimeout(this.timer);
    let jobs = [];
    try {
      ({ jobs } = await ask("api/dead-letters/jobs"));
    } catch {
      this.timer = setTimeout(() => this.follow(), LATER_MS);
      return;
    }
    const text = JSON.stringify(jobs);
    if (text !== this.shown) {
      this.shown = text;
      const kept = document.activeElement?.dataset?.keep;
      this.place.replaceChildren(...jobs.map((job) => this.card(job)));
      if (kept) document.querySelector(`[data-keep="${CSS.escape(kept)}"]`)?.focus();
    }
    this.timer = setTimeout(() => this.follow(), jobs.some((job) => job.state === "running") ? SOON_MS : LATER_MS);
  }

  card(job) {
    const title = `${job.dry_run ? "Dry run of a" : "A"} ${job.what} of ${job.topics.join(", ") || "all topics"}`;
    const kinds = { running: "warn", done: "good", failed: "bad", stopped: "warn" };
    const parts = [make("header", {}, make("h2", { text: title }), make("span", { cls: `chip ${kinds[job.state]}`, text: job.state }),
      make("span", { cls: "about", text: [job.where, job.by && `by ${job.by}`].filter(Boolean).join(" · ") }))];
    if (job.error !== null) parts.push(make("p", { cls: "error", role: "alert", text: job.error }));
    const lines = job.parts.map((part) => (job.what === "redrive" ? redriven(part) : purged(part, job.dry_run)));
    parts.push(make("ul", {}, ...lines.map((text) => make("li", { text }))));
    if (job.state === "done" && !lines.length) parts.push(make("p", { text: job.what === "redrive" ? "There is nothing to put back." : "Nothing is old enough." }));
    const amount = job.parts.reduce((sum, part) => sum + (part.redriven ?? part.offsets ?? 0), 0);
    const buttons = [];
    if (job.state === "running") buttons.push(this.button(job, "Stop", "stop"));
    if (job.dry_run && job.state === "done" && !job.confirmed && amount) {
      const words = job.what === "redrive" ? `Put ${count(amount)} back` : `Delete ${count(amount)} for good`;
      buttons.push(this.button(job, words, "confirm"));
    }
    if (buttons.length) parts.push(make("p", { cls: "actions operate" }, ...buttons));
    return make("section", { cls: "card" }, ...parts);
  }

  button(job, text, what) {
    const button = make("button", { type: "button", cls: what === "confirm" ? "sure" : "", text, "data-keep": `${what} ${job.number}` });
    button.addEventListener("click", () => { button.disabled = true; this.press(`jobs/${job.number}/${what}`); });
    return button;
  }
}

function form(text, ...rest) {
  const act = rest.pop();
  const element = make("form", { cls: "form" }, ...rest, make("button", { text }));
  element.addEventListener("submit", (event) => { event.preventDefault(); act(); });
  return element;
}

function redriven(part) {
  const left = LEFT.filter(([field]) => part[field]).map(([field, words]) => `${count(part[field])} ${words}`);
  const back = `${count(part.redriven)} ${part.dry_run ? "would go back" : "put back"}`;
  return `${part.worker}: ${part.dead_letters} to ${part.to}: ${count(part.read)} read, ${[back, ...left].join(", ")}${part.reasons.length ? `. ${part.reasons.join("; ")}` : ""}`;
}

function purged(part, isDry) {
  return `${part.topic}[${part.partition}]: offsets ${part.first} to ${part.before - 1} ${isDry ? "would be deleted" : "deleted"}, ${count(part.left)} stay`;
}
