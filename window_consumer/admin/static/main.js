// The page of the live window: frames arrive as server-sent events and are drawn when the browser is ready.
import { drawCell, readColours, STATES } from "./cells.js";
import { Details } from "./details.js";
import { make, say, show } from "./dom.js";
import { navigate } from "./nav.js";
import { SendForm } from "./send.js";
import { isDark } from "./theme.js";
import { WorkerView } from "./worker.js";

const SILENT_MS = 8000;

const connection = document.getElementById("connection");
const output = document.getElementById("output");
const news = document.getElementById("news");
const workers = document.getElementById("workers");
const views = new Map();
const details = new Details();
let theme = 0;
let frame = null;
let receivedAt = performance.now();

function tell(text, isBad = false) {
  say(news, text);
  if (isBad) {
    say(connection, text);
    connection.classList.add("lost");
  }
}

function drawLegend() {
  const legend = document.getElementById("legend");
  const free = { name: "free" };
  legend.replaceChildren(...[...Object.entries(STATES), ["", free]].map(([letter, state]) => {
    const canvas = make("canvas", { "aria-hidden": "true" });
    canvas.width = canvas.height = 22 * devicePixelRatio;
    canvas.style.width = canvas.style.height = "18px";
    const context = canvas.getContext("2d");
    context.scale(devicePixelRatio, devicePixelRatio);
    drawCell(context, letter, 0, 22);
    return make("li", {}, canvas, state.name);
  }));
}

function retheme() {
  theme += 1;
  readColours();
  drawLegend();
  document.getElementById("theme").title = isDark() ? "light" : "dark";
  if (frame) draw();
}

function draw() {
  const seen = new Set();
  for (const worker of frame.workers) {
    const name = `${worker.process} ${worker.name}`;
    seen.add(name);
    let view = views.get(name);
    if (!view) {
      views.set(name, (view = new WorkerView(details, tell)));
      workers.append(view.element);
    }
    view.update(worker, frame.time, theme);
  }
  for (const [name, view] of views) {
    if (seen.has(name)) continue;
    view.element.remove();
    views.delete(name);
  }
  const empty = workers.querySelector(".empty");
  if (seen.size && empty) empty.remove();
  if (!seen.size) {
    if (!empty) workers.append(make("p", { cls: "empty" }));
    say(workers.querySelector(".empty"), "No worker has started yet.");
  }
}

// For tests and debugging: the numbers of received, missed and drawn frames.
const counts = { frames: 0, missed: 0, drawn: 0 };
window.wcCounts = counts;
let number = null;
let asked = false;

// Only the first frame has the samples of all minutes, so an undrawn frame passes its samples to the next.
function keepSamples(earlier) {
  for (const worker of frame.workers) {
    const was = earlier.workers.find((each) => each.name === worker.name && each.process === worker.process);
    const last = was?.history.at(-1)?.t;
    if (last !== undefined) worker.history = [...was.history, ...worker.history.filter((each) => each.t > last)];
  }
}

function take(event) {
  const earlier = frame;
  frame = JSON.parse(event.data);
  if (asked) keepSamples(earlier);
  receivedAt = performance.now();
  counts.frames += 1;
  if (frame.number !== undefined) {
    if (number !== null && frame.number > number + 1) counts.missed += frame.number - number - 1;
    number = frame.number;
  }
  if (asked) return;
  asked = true;
  const later = document.hidden ? (act) => setTimeout(act, 500) : requestAnimationFrame;
  later(() => {
    asked = false;
    counts.drawn += 1;
    draw();
  });
}

async function mayLook() {
  const response = await fetch("api/frame?since=9999999999999").catch(() => null);
  if (response?.status === 401) location.assign("login");
  const body = response?.status === 503 ? await response.json().catch(() => null) : null;
  if (!body) return;
  say(connection, body.error); // of `dev`, after a mistake
  say(output, body.output ?? "");
  show(output, Boolean(body.output));
}

function listen() {
  const events = new EventSource("api/events");
  events.onopen = () => { number = null; };
  events.onmessage = (event) => {
    connection.classList.remove("lost");
    show(output, false);
    take(event);
    const missing = frame.missing ?? [];
    say(connection, missing.length ? `live; no answer from process ${missing.join(", ")}` : "live");
  };
  events.onerror = () => {
    connection.classList.add("lost");
    say(connection, "Connection lost; reconnecting …");
    mayLook();
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  };
}

setInterval(() => {
  if (performance.now() - receivedAt < SILENT_MS) return;
  connection.classList.add("lost");
  say(connection, `No data for ${Math.round((performance.now() - receivedAt) / 1000)} s`);
}, 1000);

navigate("./", retheme).then((session) => {
  if (session?.dev) new SendForm(document.getElementById("send"));
});
retheme();
addEventListener("resize", () => { if (frame) draw(); });
listen();
