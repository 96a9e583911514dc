// Requests to the worker.
function path(worker, partition, rest) {
  const of = partition ? `/partitions/${encodeURIComponent(partition.topic)}/${partition.partition}` : "";
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

export async function cellOf(worker, partition, rest) {
  return answer(await fetch(path(worker, partition, rest)));
}

export async function valueOf(worker, partition, offset) {
  return answer(await fetch(path(worker, partition, `records/${offset}/value`), { method: "POST" }));
}

// `wanted` is skip or dead-letter; throws with the reason if the worker refuses.
export async function intervene(worker, partition, offset, wanted) {
  const response = await fetch(path(worker, partition, `records/${offset}/${wanted}`), { method: "POST" });
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

export async function halt(worker, partition, halted) {
  const done = await answer(await fetch(path(worker, partition, halted ? "pause" : "resume"), { method: "POST" }));
  if (done === null) throw new Error("it is no longer here");
}
