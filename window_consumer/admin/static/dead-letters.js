// Dead letters: what they have in common, single ones, and putting them back or deleting them.
import { make, say } from "./dom.js";
import { LetterJobs } from "./letter-jobs.js";
import { LetterView } from "./letter-view.js";
import { ask, navigate } from "./nav.js";
import { count } from "./words.js";

const news = document.getElementById("news");
const found = document.getElementById("found");
const where = document.getElementById("where");
const topic = document.getElementById("topic");
const letter = new LetterView();
const jobs = new LetterJobs(document.getElementById("jobs"), tell);

function tell(text, isBad = false) {
  say(news, text);
  news.classList.toggle("lost", isBad);
}

const quoted = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
const moment = (milliseconds) => (milliseconds === null ? "unknown" : `${new Date(milliseconds).toISOString().replace("T", " ").slice(0, 19)} UTC`);

function selection() {
  return { where: where.value.trim(), topics: topic.value.trim() ? [topic.value.trim()] : [] };
}

// Adds a comparison to the condition, and searches.
function narrow(name, field, value) {
  const condition = `${field} == ${value === "unknown" ? "null" : quoted(value)}`;
  const before = where.value.trim();
  where.value = before && !before.includes(condition) ? `(${before}) and ${condition}` : condition;
  topic.value = name;
  search();
}

function chooser(name, field, value, text) {
  const button = make("button", { type: "button", cls: "quiet", text, title: `only ${field} ${value}` });
  button.addEventListener("click", () => narrow(name, field, value));
  return button;
}

function opener(name, text = name) {
  const button = make("button", { type: "button", cls: "quiet", text });
  button.addEventListener("click", () => letter.open(name, selection().topics));
  return button;
}

function table(caption, head, rows, cls = "found") {
  return make("table", { cls }, make("caption", { cls: "spoken", text: caption }),
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { text, scope: "col", cls: text === "records" ? "number" : "" })))),
    make("tbody", {}, ...rows));
}

function causesOf(name, counts) {
  const rows = Object.entries(counts.fingerprints).map(([fingerprint, each]) => make("tr", {},
    make("td", { cls: "number", text: count(each.count) }),
    make("td", {}, chooser(name, "fingerprint", fingerprint, each.class)),
    make("td", {}, opener(each.latest))));
  return table(`Causes in ${name}`, ["records", "error", "latest"], rows);
}

function bars(name, counts) {
  const groups = [["reason", counts.reasons], ["version", counts.versions]];
  return groups.map(([field, by]) => make("p", { cls: "actions" }, `${field}: `,
    ...Object.entries(by).map(([value, number]) => chooser(name, field, value, `${value} ${count(number)}`))));
}

function topicCard(name, counts) {
  const whose = counts.worker === null ? "no worker of this configuration" : `${counts.worker}, from ${counts.source}`;
  const head = make("header", {}, make("h2", { text: name }), make("span", { cls: "about", text: whose }));
  const total = counts.unknown === null
    ? `${count(counts.total)} fit: ${count(counts.open)} open, ${count(counts.resolved)} resolved`
    : `${count(counts.total)} fit; which are resolved is unknown: ${counts.unknown}`;
  const parts = [head, make("p", { text: total })];
  if (counts.total) {
    if (counts.oldest_ms !== null) parts.push(make("p", { cls: "hint", text: `the oldest open one failed ${moment(counts.oldest_ms)}` }));
    if (Object.keys(counts.fingerprints).length) parts.push(causesOf(name, counts), ...bars(name, counts));
    parts.push(jobs.actions(name, counts.worker !== null, () => where.value.trim()));
  }
  return make("section", { cls: "card" }, ...parts);
}

function letterRow(each) {
  return make("tr", {},
    make("td", {}, opener(each.dead_letter, each.id)),
    make("td", { text: moment(each.failed_at) }),
    make("td", { text: [each.reason, each.written_by === "window-consumer" ? null : each.written_by].filter(Boolean).join(", ") }),
    make("td", { cls: "error", text: [each.error_class, each.error_message].filter(Boolean).join(": ").slice(0, 300) }),
    make("td", { text: each.resolved ? "resolved" : "open" }));
}

let asked = 0;

async function search() {
  const number = ++asked;
  const { where: condition, topics } = selection();
  const query = new URLSearchParams([["where", condition], ...topics.map((each) => ["topic", each])]);
  history.replaceState(null, "", `dead-letters?${query}`);
  tell("Reading …");
  try {
    const answer = await ask(`api/dead-letters?${query}`);
    if (number !== asked) return;
    const names = Object.keys(answer.topics);
    document.getElementById("topics").replaceChildren(...[...names, ...answer.others].map((name) => make("option", { value: name })));
    const total = names.reduce((sum, name) => sum + answer.topics[name].total, 0);
    tell(`${count(total)} dead letters fit`);
    const cards = names.map((name) => topicCard(name, answer.topics[name]));
    const rows = answer.letters.map(letterRow);
    const list = make("section", { cls: "card" },
      make("h2", { text: rows.length < total ? `The latest ${rows.length}` : "All of them" }),
      table("Dead letters", ["record", "failed", "reason", "error", ""], rows, "found stack"));
    found.replaceChildren(...cards, ...(rows.length ? [list] : []));
    if (!names.length) found.append(make("p", { cls: "empty", text: "There is no dead-letter topic yet, or none that may be seen here." }));
  } catch (error) {
    if (number === asked) tell(error.message, true);
  }
}

document.getElementById("search").addEventListener("submit", (event) => { event.preventDefault(); search(); });
const given = new URLSearchParams(location.search);
where.value = given.get("where") ?? "";
topic.value = given.get("topic") ?? "";
navigate("dead-letters");
jobs.follow();
search();
