// The page of a record's journey, from the send to the end in each group.
import { make } from "./dom.js";
import { OUTCOMES } from "./outcomes.js";
import { ask, navigate } from "./nav.js";
import { duration } from "./words.js";

const KINDS = {
  processed: "good", failed: "warn", redriven: "new", sent: "new", received: "", send_failed: "bad",
};
for (const { step, end } of OUTCOMES) if (end !== "good") KINDS[step] = end === "bad" ? "bad" : "warn";
const HINTS = { record: "wc-id, or orders/0/17", key: "the key, as the producer wrote it" };
const main = document.getElementById("journey");
const form = document.getElementById("search");
const kind = document.getElementById("kind");
const asked = document.getElementById("asked");

const seconds = (microseconds) => duration(microseconds / 1e6);
const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const moment = (microseconds) => `${new Date(microseconds / 1000).toISOString().replace("T", " ").slice(0, 23)} UTC`;
const tell = (text) => main.replaceChildren(make("p", { cls: "empty", text }));
const notesOf = (answer) => answer.notes.map((text) => make("p", { cls: "note", role: "note", text }));

function stop(each) {
  const about = [];
  if (each.attempt !== null && ["failed", "stalled"].includes(each.step)) about.push(`attempt ${each.attempt}`);
  if (each.duration_us !== null) about.push(`after ${seconds(each.duration_us)}`);
  if (each.status !== "ok") about.push(each.status);
  const who = [each.client, each.host].filter(Boolean).join("@");
  if (who) about.push(who);
  const text = make("span", { text: about.join(" · ") });
  if (each.error) text.append(" ", make("span", { cls: "error", text: [each.error, each.fingerprint].filter(Boolean).join(" ") }));
  if (each.is_early) text.append(" ", make("span", { cls: "skew", text: "clock skew" }));
  const sign = each.after_us < 0 ? "−" : "+";
  const time = make("time", { text: `${sign}${seconds(Math.abs(each.after_us))}`, title: moment(each.time_us), datetime: new Date(each.time_us / 1000).toISOString() });
  return make("li", { cls: `stop ${KINDS[each.step] ?? ""}` }, time, make("b", { text: each.step }), text);
}

function hop(each) {
  return [make("li", { cls: "at", text: each.place }), ...each.stops.map(stop)];
}

function way(each) {
  const about = [...each.handlers.map((name) => `handler ${name}`), ...each.apps];
  if (each.attempts) about.push(plural(each.attempts, "attempt"));
  if (each.redrives) about.push(`put back ${plural(each.redrives, "time")}`);
  if (each.replays) about.push(`replayed ${plural(each.replays, "time")}`);
  const state = each.went_wrong ? "bad" : each.end ? "good" : "warn";
  return make("section", { cls: "way" },
    make("h3", {}, `group ${each.group}`, make("span", { cls: `chip ${state}`, text: each.end ?? "not finished" }), make("span", { cls: "about", text: about.join(" · ") })),
    make("ul", { cls: "line" }, ...each.hops.flatMap(hop)));
}

function passage(each, index) {
  const about = [each.place];
  if (each.key !== null) about.push(`key ${each.key}`);
  if (each.tags) about.push(`tags ${each.tags}`);
  const sent = each.sent.length ? [make("ul", { cls: "line" }, ...each.sent.map(stop))] : [];
  return make("article", { cls: "passage" },
    make("h2", { text: `${index ? "then " : ""}${each.record ?? "a record without an id"}` }),
    make("p", { cls: "about", text: about.join(" · ") }), ...sent, ...each.ways.map(way));
}

async function showJourney(record) {
  const answer = await ask(`api/trace/${encodeURIComponent(record)}`);
  document.title = `${record} · window-consumer`;
  if (!answer.passages.length) {
    main.replaceChildren(...notesOf(answer), make("p", { cls: "empty", text: `No steps of ${record} found.` }));
    return;
  }
  const summary = make("p", { cls: "summary" },
    make("span", {}, "began ", make("b", { text: moment(answer.began_us) })),
    make("span", {}, "lasted ", make("b", { text: seconds(answer.lasted_us) })),
    make("span", {}, make("b", { text: String(answer.steps) }), " steps"));
  if (answer.has_skew) summary.append(make("span", { text: "The hosts' clocks differ: some steps appear earlier than their causes." }));
  main.replaceChildren(...notesOf(answer), summary, ...answer.passages.map(passage));
}

async function showRecords(asked) {
  const answer = await ask(`api/trace?${asked}`);
  if (!answer.records.length) {
    main.replaceChildren(...notesOf(answer), make("p", { cls: "empty", text: `No records with ${[...asked].map((pair) => pair.join(" ")).join(", ")} found.` }));
    return;
  }
  const head = make("tr", {}, ...["last step (UTC)", "record", "step", "group", "where", "error"].map((text) => make("th", { text, scope: "col" })));
  const rows = answer.records.map((each) => make("tr", {},
    make("td", { text: moment(each.time_us) }),
    make("td", {}, make("a", { href: `trace?record=${encodeURIComponent(each.record)}`, text: each.record })),
    make("td", { text: each.status === "ok" ? each.step : `${each.step}, ${each.status}` }), make("td", { text: each.group ?? "" }), make("td", { text: each.topic }),
    make("td", { cls: "error", text: [each.error, each.fingerprint].filter(Boolean).join(" ") })));
  main.replaceChildren(...notesOf(answer), make("table", { cls: "found stack" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function choose(name) {
  kind.value = name;
  asked.name = name;
  asked.placeholder = HINTS[name];
}

navigate("trace");
kind.addEventListener("change", () => choose(kind.value));
const fields = document.getElementById("fields");
fields.elements.step.append(...Object.keys(KINDS).map((text) => make("option", { text, value: text })));
fields.addEventListener("submit", () => { for (const each of fields.elements) each.disabled = !each.value; });
const given = new URLSearchParams([...new URLSearchParams(location.search)].filter(([, value]) => value));
const record = given.get("record");
if (record || given.size) {
  tell("Searching …");
  if (record) asked.value = record;
  else if (given.size === 1 && given.has("key")) {
    choose("key");
    asked.value = given.get("key");
  } else {
    document.getElementById("more").open = true;
    for (const [name, value] of given) if (fields.elements[name]) fields.elements[name].value = value;
  }
  (record ? showJourney(record) : showRecords(given)).catch((error) => tell(error.message));
}
