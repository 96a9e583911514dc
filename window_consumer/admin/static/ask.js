// Requests to the worker.
function path(worker, name, rest) {
  const of = name ? `/partitions/${encodeURIComponent(name.topic)}/${name.partition}` : "";
  const process = worker.process ? `?process=${encodeURIComponent(worker.process)}` : "";
  return `api/workers/${encodeURIComponent(worker.name)}${of}/${rest}${process}`;
}

async function answer(response) {
  if (response.status === 401) location.assign("login");
  if (response.status === 404) return null;
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? response.statusText);
  return body;
}

export async function cellOf(worker, name, rest) {
  return answer(await fetch(path(worker, name, rest)));
}

export async function valueOf(worker, name, offset) {
  return answer(await fetch(path(worker, name, `records/${offset}/value`), { method: "POST" }));
}

// `wanted` is skip or dead-letter; throws with the reason if the worker refuses.
export async function intervene(worker, name, offset, wanted) {
  const response = await fetch(path(worker, name, `records/${offset}/${wanted}`), { method: "POST" });
  if (response.status === 401) location.assign("login");
  const body = await response.json();
  if (response.status !== 200) throw new Error(body.error ?? response.statusText);
}

// `what` is release or hold.
export async function decideBreaker(worker, what) {
  const response = await fetch(path(worker, null, `breaker/${what}`), { method: "POST" });
  if (response.status === 401) location.assign("login");
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? response.statusText);
}

export async function halt(worker, name, halted) {
  const done = await answer(await fetch(path(worker, name, halted ? "pause" : "resume"), { method: "POST" }));
  if (done === null) throw new Error("it is no longer here");
}
