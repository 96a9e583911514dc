// A consumer and a producer with Amazon's client for Node.js: node client.mjs FOLDER ENDPOINT QUEUE
// The client compares the MD5 sums of what it sends and receives. Prints what it saw as JSON.
import { createRequire } from "node:module";

const [folder, endpoint, name] = process.argv.slice(2);
const sdk = createRequire(`${folder}/`)("@aws-sdk/client-sqs");
const client = new sdk.SQSClient({
  endpoint,
  region: "eu-west-1",
  credentials: { accessKeyId: process.env.ACCESS_KEY, secretAccessKey: process.env.SECRET },
  maxAttempts: 1,
});
const call = (command, given) => client.send(new sdk[`${command}Command`](given));
const refusal = (command, given) => call(command, given).then(() => "", (error) => error.name);

const { QueueUrl } = await call("GetQueueUrl", { QueueName: name });
const group = name.endsWith(".fifo") ? { MessageGroupId: "g" } : {};
const MessageAttributes = {
  photo: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
  price: { DataType: "Number", StringValue: "1.5" },
};
await call("SendMessage", { QueueUrl, MessageBody: "grüezi 🎈", MessageAttributes, ...group });
await call("SendMessageBatch", {
  QueueUrl,
  Entries: ["a", "b"].map((Id) => ({ Id, MessageBody: Id, ...group })),
});

const received = [];
while (received.length < 3) {
  const { Messages = [] } = await call("ReceiveMessage", {
    QueueUrl,
    MaxNumberOfMessages: 10,
    WaitTimeSeconds: 20,
    MessageAttributeNames: ["All"],
    MessageSystemAttributeNames: ["All"],
  });
  for (const each of Messages) {
    received.push({ body: each.Body, ...each.Attributes, ...(each.MessageAttributes ?? {}) });
  }
  await call("DeleteMessageBatch", {
    QueueUrl,
    Entries: Messages.map(({ ReceiptHandle }, at) => ({ Id: `${at}`, ReceiptHandle })),
  });
}

const refused = [
  await refusal("GetQueueUrl", { QueueName: "nowhere" }),
  await refusal("DeleteMessage", { QueueUrl, ReceiptHandle: "of another" }),
  await refusal("PurgeQueue", { QueueUrl }),
];
console.log(JSON.stringify({ url: QueueUrl, received, refused }));
