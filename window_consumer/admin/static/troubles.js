// The most urgent problems, one sentence each.
import { duration, nameOf } from "./words.js";

const HOVERS_S = 2;
const LONG_S = 10;
const MOST = 8;

function whyOf(call, offset) {
  if (!call) return `offset ${offset} waits for its next call, for one before it in its lane, or for the ack of its copy`;
  const time = duration(call.seconds);
  if (call.abandoned) return `offset ${offset} may wait in the lane of offset ${call.offset}, which was abandoned and has been running for ${time}`;
  return `offset ${call.offset}, attempt ${call.attempt}, has been running for ${time}`;
}

const HELD = {
  holding: "; nothing leaves until the cause is known",
  poison: "; a record leaves only if others succeed beside it",
  overload: "; fewer calls run at once, and nothing leaves",
  open: "; single calls test whether the outage is over, and nothing leaves",
  paused: "; most new records asked for a later call, and no call starts until then",
  "half-open": "; each successful round allows more calls",
};

// Bad records that fill all windows look like an outage.
function decisionOf(worker) {
  const { breaker, partitions } = worker.snapshot;
  if (breaker.state !== "open" && breaker.state !== "holding") return "";
  const behind = partitions.filter((each) => !each.level && each.lag.records > each.open);
  const full = behind.length && behind.every((each) => each.row.length >= each.capacity_cells);
  const command = `window-consumer breaker --worker ${worker.name} --url ${location.origin}`;
  if (breaker.declared) return `. A user has declared the outage; to undo that: ${command} --release`;
  if (full) return `. It cannot distinguish bad records that fill all windows from an outage, so it holds them until somebody decides: ${command} --release if the records are bad, --hold if it is an outage`;
  return breaker.state === "open" ? `. If these records are bad, release them: ${command} --release` : "";
}

function byWhom(pause) {
  if (!pause) return "";
  return `${pause.user ? ` by ${pause.user}` : ""} for ${duration(pause.seconds)}${pause.reason ? ` (${pause.reason})` : ""}`;
}

export function troublesOf(worker) {
  const windows = worker.snapshot;
  if (!windows) {
    return [{ bad: true, what: "Silent", text: `the poll thread has not answered for ${duration(worker.silent_s)}` }];
  }
  const found = [];
  const findings = windows.findings ?? [];
  const accept = `window-consumer resume --worker ${worker.name} --url ${location.origin}`;
  for (const each of findings) {
    const then = each.pauses ? "the worker is paused and nothing leaves: roll back, or accept it with “Resume worker” or" : "to accept it:";
    found.push({ bad: true, what: each.pauses ? "Paused" : "Alert", text: each.ends_itself ? each.text : `${each.text}; ${then} ${accept}` });
  }
  if (windows.halted && !findings.some((each) => each.pauses)) found.push({ what: "Paused", text: `this worker is paused manually${byWhom(windows.pause)}; no new calls start` });
  else if (!windows.halted && worker.phase === "running" && worker.catching_up != null) found.push({ what: "Not ready", text: `catching up: ${worker.catching_up} records of its initial backlog are left` });
  else if (!windows.halted && !worker.ready) found.push({ bad: true, what: "Not ready", text: `phase ${worker.phase}; it has not joined its group, or is leaving it` });
  const { breaker } = windows;
  const isHeld = breaker.state !== "closed"; // explains hovering windows without a call
  if (isHeld) {
    const now = breaker.calls ? `${breaker.failed} of the last ${breaker.calls} calls failed` : "calls failed one after another";
    const failed = breaker.why || now;
    const held = HELD[breaker.state] ?? "";
    found.push({ bad: true, what: "Breaker", text: `${breaker.state} for ${duration(breaker.seconds)}: ${failed}${held}${decisionOf(worker)}` });
  }
  if (windows.abandoned) found.push({ bad: true, what: "Abandoned", text: `${windows.abandoned} abandoned ${windows.abandoned === 1 ? "call is" : "calls are"} still running` });
  const calls = new Set();
  for (const each of [...windows.partitions].sort((one, other) => other.hovering_s - one.hovering_s)) {
    const name = nameOf(each.name);
    if (each.halted && !windows.halted) found.push({ what: "Paused", text: `${name}, manually; no new calls start` });
    if (each.hovering_s >= HOVERS_S && each.row[0] === "H") {
      const here = windows.calls.filter((one) => nameOf(one.name) === name);
      const call = here.find((one) => one.offset === each.first_open) ?? here.find((one) => one.abandoned);
      if (!call && isHeld) continue;
      if (call && !call.abandoned) calls.add(call);
      const why = whyOf(call, each.first_open);
      const beside = each.row.includes("d") ? " while later cells are done" : "";
      found.push({ bad: true, what: "Hovers", text: `${name} for ${duration(each.hovering_s)}${beside}: ${why}`, name: each.name, rest: `cells/${each.slid}` });
    }
  }
  for (const call of windows.calls) {
    if (call.seconds < LONG_S || calls.has(call)) continue;
    const how = call.abandoned ? "abandoned, still running" : "running";
    found.push({ what: "Slow call", text: `${nameOf(call.name)} offset ${call.offset}, attempt ${call.attempt}: ${how} for ${duration(call.seconds)}`, name: call.name, rest: `records/${call.offset}` });
  }
  if (found.length <= MOST) return found;
  const more = found.length - MOST + 1;
  return [...found.slice(0, MOST - 1), { what: "And more", text: `${more} further problems; see the partitions below` }];
}
