/**
 * Program of the memory test: calls RunBatch through the real client and prints what the answer was and how far the process grew at
 * most, as JSON. A process of its own, so that nothing else counts.
 */
import { createBackend } from "../../src/ipc/backend_pool.ts";
import { connectUnix, type Stream } from "../../src/ipc/connection.ts";

const [path = ""] = Deno.args;
let highest = 0;

/** Memory is looked at whenever it may be at a peak: before each read, when all is joined, and after decoding. */
function look(): void {
  highest = Math.max(highest, Deno.memoryUsage().rss);
}

async function connect(to: string): Promise<Stream> {
  const stream = await connectUnix(to);
  return {
    read(into) {
      look();
      return stream.read(into);
    },
    write: (bytes) => stream.write(bytes),
    close: () => stream.close(),
  };
}

const backend = createBackend({
  sockets: [path],
  poolSize: 1,
  requestTimeoutMs: 600_000,
  modelReadyTimeoutMs: 600_000,
  generateFrameTimeoutMs: 600_000,
  connect,
  chunks: { completed: look },
});
const body = { modelId: "m", operation: "encode" as const, batchId: 0, loraKey: "", totalCost: 0, entries: [] };
// The first answer is small: what starting up costs is not the transfer's.
await backend.runBatch(body);
const before = Deno.memoryUsage().rss;
highest = 0;
const answer = await backend.runBatch(body);
look();
const growth = highest - before;
let sum = 0;
for (const outcome of answer.outcomes) {
  if (outcome.rawOutput?.kind === "dense") { for (const value of outcome.rawOutput.values) sum += value; }
}
backend.close();
Deno.stdout.writeSync(new TextEncoder().encode(
  `${JSON.stringify({ growth, bytes: answer.bytes.length, outcomes: answer.outcomes.length, sum })}\n`,
));
