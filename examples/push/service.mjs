// A service in Node.js that handles the records of a worker with `http`: node service.mjs
//
// It needs nothing but Node.js.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const TOLERANCE_S = 300;

const key = Buffer.from((process.env.HOOK_SECRET ?? "").replace(/^whsec_/, ""), "base64");
if (key.length === 0) {
  console.error("set HOOK_SECRET to the secret of the worker");
  process.exit(1);
}
const seen = new Set(); // a database with a unique index, in a real service

// Says whether a request is from the worker, and recent: Standard Webhooks.
function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": sent, "webhook-signature": signatures } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(sent)) <= TOLERANCE_S)) return false;
  const mac = createHmac("sha256", key).update(`${id}.${sent}.`).update(body).digest("base64");
  const wanted = Buffer.from(`v1,${mac}`);
  return (signatures ?? "").split(" ").some((signature) => {
    const given = Buffer.from(signature);
    return given.length === wanted.length && timingSafeEqual(given, wanted);
  });
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

async function handle(request, answer) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (!isSigned(request.headers, body)) {
    return answer.writeHead(401).end("the signature is wrong");
  }
  const order = parsed(body);
  if (typeof order?.amount !== "number") {
    return answer.writeHead(422).end("an order has an amount");
  }
  const id = request.headers["idempotency-key"];
  if (!seen.has(id)) {
    seen.add(id);
    console.log(`charged ${order.amount} for ${id}`);
  }
  const event = { topic: "order-events", key: id, value: { paid: order.amount } };
  answer.writeHead(200, { "Content-Type": "application/json" });
  answer.end(JSON.stringify({ produce: [event] }));
}

const server = createServer((request, answer) => {
  handle(request, answer).catch(() => answer.destroy()); // the worker posts it again
});
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/events`);
});
