// The form that sends a record; only `window-consumer dev` has it.
import { make, say, show } from "./dom.js";
import { ask } from "./nav.js";

// One header a line, as in `type: paid`; throws for a line without a colon.
function headersOf(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`headers: "${line.trim()}" is not NAME: TEXT`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

export class SendForm {
  constructor(element) {
    this.topics = make("datalist", { id: "send-topics" });
    this.topic = make("input", { name: "topic", required: true, list: "send-topics", autocomplete: "off" });
    this.key = make("input", { name: "key", placeholder: "none", autocomplete: "off" });
    this.value = make("textarea", { name: "value", rows: "3", placeholder: "{}", spellcheck: "false" });
    this.headers = make("textarea", { name: "headers", rows: "3", placeholder: "type: paid", spellcheck: "false" });
    this.partition = make("input", { name: "partition", type: "number", min: "0", step: "1", placeholder: "by key" });
    this.tombstone = make("input", { name: "tombstone", type: "checkbox" });
    this.tombstone.addEventListener("change", () => { this.value.disabled = this.tombstone.checked; });
    this.button = make("button", { text: "Send" });
    this.answer = make("output", { cls: "answer" });
    this.form = make("form", { cls: "send-fields", "aria-label": "Send a record" },
      make("label", { text: "topic" }, this.topic, this.topics),
      make("label", { text: "key" }, this.key),
      make("label", { text: "partition" }, this.partition),
      make("label", { cls: "wide", text: "value" }, this.value),
      make("label", { cls: "wide", text: "headers, one a line" }, this.headers),
      make("label", { cls: "tick" }, this.tombstone, "no value"),
      this.button, this.answer);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    element.replaceChildren(make("details", { open: true }, make("summary", { text: "Send a record" }), this.form));
    show(element, true);
    this.load();
  }

  async load() {
    const { topics } = await ask("api/dev");
    this.topics.replaceChildren(...topics.map((value) => make("option", { value })));
    if (!this.topic.value && topics.length) this.topic.value = topics[0];
  }

  async send() {
    this.button.disabled = true;
    try {
      const record = {
        topic: this.topic.value.trim(),
        key: this.key.value === "" ? null : this.key.value,
        value: this.tombstone.checked ? null : this.value.value,
        headers: headersOf(this.headers.value),
        partition: this.partition.value === "" ? null : Number(this.partition.value),
      };
      const body = JSON.stringify(record);
      const sent = await ask("api/dev/send", { method: "POST", headers: { "content-type": "application/json" }, body });
      this.report(`sent to ${sent.topic}[${sent.partition}], offset ${sent.offset}`);
    } catch (problem) {
      this.report(problem instanceof TypeError ? "The application does not answer: it may be reloading. Try again." : problem.message, true);
    } finally {
      this.button.disabled = false;
    }
  }

  report(text, isBad = false) {
    say(this.answer, text);
    this.answer.classList.toggle("error", isBad);
  }
}
