// The dialog of one dead letter: its error, headers, key and value, masked as everywhere.
import { make, say } from "./dom.js";
import { ask } from "./nav.js";
import { count } from "./words.js";

const FACTS = [
  ["record", "id"], ["reason", "reason"], ["error", "error_class"], ["message", "error_message"], ["fingerprint", "fingerprint"],
  ["group", "group"], ["handler", "handler"], ["version", "app_version"], ["host", "host"], ["attempts", "attempts"],
  ["level", "level"], ["redrives", "redrives"], ["written by", "written_by"], ["value was too large, it stood at", "value_ref"],
  ["perhaps not copied by the share group, it stood at", "pointer_to"],
];
const TIMES = [["sent", "original_timestamp"], ["first failed", "first_failure"], ["last failed", "last_failure"], ["written", "timestamp"]];

const time = (milliseconds) => new Date(milliseconds).toISOString().replace("T", " ").replace("Z", " UTC");

export class LetterView {
  constructor() {
    this.dialog = document.getElementById("letter");
    this.title = document.getElementById("letter-title");
    this.body = document.getElementById("letter-body");
    document.getElementById("letter-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  async open(name, topics) {
    say(this.title, name);
    this.body.replaceChildren(make("p", { text: "Loading …" }));
    if (!this.dialog.open) this.dialog.showModal();
    try {
      const body = JSON.stringify({ name, topics });
      this.show(await ask("api/dead-letters/letter", { method: "POST", body, headers: { "content-type": "application/json" } }));
    } catch (error) {
      this.body.replaceChildren(make("p", { cls: "error", role: "alert", text: error.message }));
    }
  }

  show(view) {
    say(this.title, view.dead_letter);
    const facts = FACTS.filter(([, field]) => view[field] !== null && view[field] !== undefined).map(([text, field]) => [text, String(view[field])]);
    const times = TIMES.filter(([, field]) => view[field] !== null).map(([text, field]) => [text, time(view[field])]);
    const parts = [make("dl", { cls: "headers" }, ...[...facts, ...times].flatMap(pair))];
    if (view.resolved) parts.push(make("p", { text: `${view.resolved.what} ${time(view.resolved.at_ms)}, into ${view.resolved.to}` }));
    if (view.resolved_unknown) parts.push(make("p", { cls: "hint", text: view.resolved_unknown }));
    if (view.also.length) parts.push(make("p", { cls: "hint", text: `Earlier ones of the same record: ${view.also.join(", ")}` }));
    parts.push(...content("Key", view.key), ...content("Value", view.value), make("h3", { text: "Headers" }));
    parts.push(make("dl", { cls: "headers" }, ...view.headers.filter(([name]) => !name.endsWith("-stack") && !name.endsWith("stacktrace")).flatMap(([name, text]) => pair([name, text ?? "null"]))));
    if (view.error_stack) parts.push(make("h3", { text: "Stack" }), make("pre", { tabindex: 0, text: view.error_stack }));
    this.body.replaceChildren(...parts);
  }
}

function pair([name, text]) {
  return [make("dt", { text: name }), make("dd", { text })];
}

function content(title, data) {
  if (data === null) return [make("h3", { text: `${title}: null` })];
  const source = data.decoded_from ? `, decoded from ${data.decoded_from}` : "";
  const head = [make("h3", { text: `${title} (${count(data.bytes)} bytes, ${data.form}${source})` })];
  if (data.form === "hidden") return [...head, make("p", { cls: "hint", text: data.why })];
  if (data.undecoded) head.push(make("p", { cls: "hint", text: `Not decoded: ${data.undecoded}` }));
  const text = data.form === "json" ? JSON.stringify(data.json, null, 2) : data.text ?? data.hex;
  return [...head, make("pre", { cls: "value", tabindex: 0, text, "aria-label": title })];
}
