// The audit: what became of the records of each topic and group, and what explains a bucket.
import { make, say } from "./dom.js";
import { ask, navigate } from "./nav.js";
import { count, duration } from "./words.js";

const AGAIN_MS = 1000;
const ALWAYS = new Set(["produced", "finished", "retried", "dead_lettered", "in_flight", "lost", "duplicated"]);
const BAD = new Set(["lost", "exchanged"]);
const news = document.getElementById("news");
const place = { report: document.getElementById("report"), explanation: document.getElementById("explained") };

function tell(text, isBad = false) {
  say(news, text);
  news.classList.toggle("lost", isBad);
}

const words = (term) => term.replaceAll("_", " ");
const listed = (by) => Object.entries(by).map(([name, number]) => `${count(number)} ${name}`).join(", ");
const whose = (topic, group) => `${topic}, ${group || "no group"}`;

async function start(question) {
  tell("Starting …");
  try {
    const { number } = await ask("api/audit/reports", { method: "POST", body: JSON.stringify(question), headers: { "content-type": "application/json" } });
    await follow(number, performance.now());
  } catch (error) {
    tell(error.message, true);
  }
}

async function follow(number, began) {
  for (;;) {
    const report = await ask(`api/audit/reports/${number}`);
    if (report.state !== "running") {
      finish(report);
      return;
    }
    tell(`${report.kind === "report" ? "The report" : "The explanation"} is running for ${duration(Math.round((performance.now() - began) / 1000))} …`);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function finish(report) {
  if (report.state === "failed") {
    tell("It failed.", true);
    place[report.kind].replaceChildren(make("section", { cls: "card" }, make("p", { cls: "error", role: "alert", text: report.notes })));
    return;
  }
  tell("Done.");
  const notes = report.notes ? [make("p", { cls: "note", role: "note", text: report.notes })] : [];
  const cards = report.kind === "report" ? reportCards(report) : [explanationCard(report)];
  place[report.kind].replaceChildren(...notes, ...cards);
  if (report.kind === "explanation") place.explanation.querySelector("h2")?.focus();
}

function reportCards({ result, since }) {
  if (!result.places.length) return [make("p", { cls: "empty", text: `Nothing was counted in the last ${since}.` })];
  return [...result.places.map(placeCard), ...(result.buckets.length ? [bucketsCard(result)] : []), ...(result.latencies.length ? [latencyCard(result)] : [])];
}

function placeCard({ topic, group, totals, findings, states }) {
  const terms = Object.keys(totals).filter((term) => ALWAYS.has(term) || totals[term]);
  const isBad = Object.keys(findings).some((each) => BAD.has(each));
  return make("section", { cls: "card" },
    make("header", {}, make("h2", { text: whose(topic, group) }), make("span", { cls: `chip ${isBad ? "bad" : "good"}`, text: isBad ? "lost" : "nothing lost" })),
    make("dl", { cls: "figures" }, ...terms.map((term) => make("div", {}, make("dt", { text: words(term) }), make("dd", { text: count(totals[term]) })))),
    make("p", { cls: "hint", text: `buckets found: ${listed(findings)}` }), make("p", { cls: "hint", text: `their states: ${listed(states)}` }));
}

function table(head, rows) {
  return make("table", { cls: "found stack" }, make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { text, scope: "col" })))), make("tbody", {}, ...rows));
}

function bucketsCard({ buckets, more_buckets: more }) {
  const rows = buckets.map((each) => {
    const button = make("button", { type: "button", text: "Explain", "aria-label": `Explain ${each.bucket} of ${whose(each.topic, each.group)}` });
    button.addEventListener("click", () => start({ bucket: each.bucket, topics: [each.topic], groups: each.group ? [each.group] : [] }));
    const numbers = ["lost", "duplicated", "uncounted", "unknown", "gone", "in_flight"].filter((term) => each[term]).map((term) => `${count(each[term])} ${words(term)}`);
    return make("tr", {}, make("td", { text: each.bucket }), make("td", { text: whose(each.topic, each.group) }),
      make("td", { text: each.state + (each.was_reopened ? " (late)" : "") }), make("td", { cls: BAD.has(each.finding) ? "error" : "", text: each.finding }),
      make("td", { text: numbers.join(", ") }), make("td", {}, button));
  });
  const parts = [make("h2", { text: "Buckets that need attention" }), table(["bucket", "topic, group", "state", "found", "records", ""], rows)];
  if (more) parts.push(make("p", { cls: "hint", text: `and ${count(more)} more: choose a topic, a group or a shorter time` }));
  return make("section", { cls: "card" }, ...parts);
}

function latencyCard({ latencies }) {
  const rows = latencies.map((each) => make("tr", {}, make("td", { text: whose(each.topic, each.group) }), make("td", { text: each.host ?? "all hosts" }),
    make("td", { text: `${count(each.count)} records` }), make("td", { text: ["p50", "p95", "p99"].map((name) => `${name} ${duration(each[`${name}_ms`] / 1000)}`).join(", ") })));
  return make("section", { cls: "card" }, make("h2", { text: "From the producer's timestamp to the end" }), table(["topic, group", "host", "records", "latency"], rows));
}

// Runs of offsets, each with a link to what the trace knows of its first one.
function runs(title, each, found) {
  if (!found?.length) return [];
  const links = found.flatMap(([first, stop], index) => [index ? ", " : "", make("a", { href: `trace?at=${encodeURIComponent(`${each.topic}/${each.partition}/${first}`)}`, text: stop === first + 1 ? String(first) : `${first} to ${stop - 1}` })]);
  return [make("p", {}, `${title}: `, ...links)];
}

function explanationCard({ bucket, result }) {
  const parts = result.partitions.flatMap((each) => [
    make("h3", { text: `${each.topic}[${each.partition}], ${each.group || "no group"}: ${count(each.came)} came, ${count(each.left)} left` }),
    ...runs("Offsets that nobody has counted", each, each.missing), ...runs("Offsets counted with this bucket", each, each.counted),
    ...(each.unknown_ids?.length ? [make("p", {}, "Ids of sends with an unknown result: ", ...each.unknown_ids.flatMap((id, index) => [index ? ", " : "", make("a", { href: `trace?record=${encodeURIComponent(id)}`, text: id })]))] : [])]);
  if (!parts.length) parts.push(make("p", { text: "Nothing differs in that bucket." }));
  return make("section", { cls: "card" }, make("h2", { tabindex: -1, text: `Bucket ${bucket}` }), ...parts);
}

document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const named = (id) => [document.getElementById(id).value.trim()].filter(Boolean);
  place.explanation.replaceChildren();
  start({ since: named("since")[0], topics: named("topic"), groups: named("group"), refresh: document.getElementById("refresh").checked });
});
navigate("audit");
