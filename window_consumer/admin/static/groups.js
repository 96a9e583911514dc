// The groups of the workers: members, and what is left to do in each topic, as Kafka says.
import { make, say } from "./dom.js";
import { ask, navigate } from "./nav.js";
import { count } from "./words.js";

const AGAIN_MS = 10_000;
const KINDS = {
  source: () => "source",
  redriven: () => "redriven",
  retry: ({ level }) => `waits ${level}`,
  park: () => "parked",
  "dead-letter": () => "dead letters",
};
const connection = document.getElementById("connection");
const main = document.getElementById("groups");
const opened = new Set();

function cell(text, cls = "") {
  return make("td", { text, cls });
}

function partitionsOf(topic) {
  const head = ["partition", "log", "committed", "waiting", "member"];
  const rows = topic.partitions.map((each) => make("tr", {},
    cell(String(each.partition), "number"), cell(`${each.start} to ${each.end}`, "number"),
    cell(each.committed === null ? "–" : String(each.committed), "number"), cell(count(each.waiting), "number"),
    cell(each.member ?? "–")));
  return make("table", { cls: "found" },
    make("thead", {}, make("tr", {}, ...head.map((text, index) => make("th", { text, scope: "col", cls: index < 4 ? "number" : "" })))),
    make("tbody", {}, ...rows));
}

function topicRow(worker, topic) {
  const key = `${worker.name} ${topic.topic}`;
  const isOpen = opened.has(key);
  const button = make("button", { type: "button", cls: "quiet", text: `${isOpen ? "▾" : "▸"} ${topic.partitions.length}`, "aria-expanded": String(isOpen), "aria-label": `Partitions of ${topic.topic}`, "data-keep": key });
  const row = make("tr", {}, cell(topic.topic, "name"), cell((KINDS[topic.kind] ?? (() => topic.kind))(topic)), cell(count(topic.waiting), "number"), make("td", { cls: "number" }, button));
  const more = make("tr", { cls: "more" }, make("td", { colspan: 4 }, partitionsOf(topic)));
  more.hidden = !isOpen;
  button.addEventListener("click", () => {
    more.hidden = !more.hidden;
    if (more.hidden) opened.delete(key);
    else opened.add(key);
    say(button, `${more.hidden ? "▸" : "▾"} ${topic.partitions.length}`);
    button.setAttribute("aria-expanded", String(!more.hidden));
  });
  return [row, more];
}

function membersOf(worker) {
  if (!worker.members.length) return make("p", { cls: "hint", text: "No members: nobody reads now." });
  return make("ul", { cls: "members", "aria-label": "Members" }, ...worker.members.map((each) =>
    make("li", {}, make("b", { text: each.client_id }), ` ${each.host} · ${each.partitions} partition${each.partitions === 1 ? "" : "s"}`)));
}

function section(worker) {
  const head = make("header", {}, make("h2", { text: worker.name }));
  if (worker.error !== null) {
    return make("section", { cls: "card" }, head, make("p", { cls: "error", role: "alert", text: worker.error }));
  }
  if (worker.group === null) {
    return make("section", { cls: "card" }, head, make("p", { cls: "hint", text: "delivery: broadcast. Its processes have no group and commit nothing." }));
  }
  const isWell = ["Stable", "Empty", ""].includes(worker.state);
  head.append(make("span", { cls: `chip ${isWell && worker.members.length ? "good" : "warn"}`, text: worker.state || "unknown" }),
    make("span", { cls: "about", text: [`group ${worker.group}`, worker.protocol && `${worker.protocol} protocol`, worker.assignor].filter(Boolean).join(" · ") }));
  const columns = [["topic", ""], ["records", ""], ["waiting", "number"], ["partitions", "number"]];
  const table = make("table", { cls: "found" },
    make("caption", { cls: "spoken", text: `Topics of ${worker.name}` }),
    make("thead", {}, make("tr", {}, ...columns.map(([text, cls]) => make("th", { text, cls, scope: "col" })))),
    make("tbody", {}, ...worker.topics.flatMap((topic) => topicRow(worker, topic))));
  return make("section", { cls: "card" }, head, membersOf(worker), table);
}

let shown = "";

async function refresh() {
  try {
    const answer = await ask("api/groups");
    say(connection, `as of ${new Date(answer.time).toLocaleTimeString()}`);
    connection.classList.remove("lost");
    const text = JSON.stringify(answer.workers);
    if (text !== shown) {
      shown = text;
      const kept = document.activeElement?.dataset?.keep;
      main.replaceChildren(...answer.workers.map(section));
      if (!answer.workers.length) main.append(make("p", { cls: "empty", text: "The configuration has no worker." }));
      if (kept) document.querySelector(`[data-keep="${CSS.escape(kept)}"]`)?.focus();
    }
  } catch (error) {
    say(connection, error.message);
    connection.classList.add("lost");
  }
  setTimeout(refresh, AGAIN_MS);
}

navigate("groups");
refresh();
