/**
 * A backend that generates and does nothing else: `generate_stub.ts SOCKET`. A prompt of `COUNT GAP_MS` makes it publish COUNT tiny
 * chunks, GAP_MS apart (0: as fast as they are taken); each carries the time it was made in its text, in microseconds of the
 * machine's monotonic clock.
 */
import { BACKEND_FRAMES, FrameReader, writeAll } from "../../src/wire/frames.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { decodeWorkItem, WorkItemField } from "../../src/wire/work_item.ts";
import { msgpack, type Value } from "../../tests/harness/work_items.ts";

/** Microseconds of the machine's clock, comparable between processes. */
function nowUs(): number {
  return Math.round((performance.timeOrigin + performance.now()) * 1000);
}

interface Call {
  readonly method: string;
  readonly requestId: string;
  readonly workItem: Uint8Array | undefined;
}

function readCall(frame: Uint8Array): Call {
  const reader = new MsgpackReader(frame);
  let method = "", requestId = "";
  let workItem: Uint8Array | undefined;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const key = reader.text();
    if (key === "method") method = reader.text();
    else if (key === "request_id") requestId = reader.text();
    else if (key === "body" && reader.kind() === "map") {
      for (let more = reader.mapHeader(); more > 0; more--) {
        if (reader.text() === "work_item_msgpack") {
          reader.binSpan();
          workItem = frame.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
        } else reader.skip();
      }
    } else reader.skip();
  }
  return { method, requestId, workItem };
}

function framed(requestId: string, body: Value): Uint8Array {
  const answer = msgpack({ version: 1, request_id: requestId, ok: true, body, error: null });
  const frame = new Uint8Array(answer.length + 4);
  new DataView(frame.buffer).setUint32(0, answer.length);
  frame.set(answer, 4);
  return frame;
}

function event(kind: string, replySubject = "", payload: Uint8Array = new Uint8Array(0)): Value {
  return { kind, reply_subject: replySubject, payload, delay_ms: null, error: null };
}

const ANSWERS: Readonly<Record<string, Value>> = {
  Ping: {
    timestamp_ms: 0,
    worker_id: "stub",
    ready: true,
    bundle_config_hash: "",
    loaded_models: [],
    loading_models: [],
  },
  EnsureModelReady: { state: "ready", batch_budget: null, descriptor: null },
  WorkerCapabilities: {
    has_generation_models: true,
    generation_models: ["bench/model"],
    supported_models: [],
    loaded_models: [],
  },
  SignalGenerateCancel: { matched: false },
  Drain: { acknowledged: true },
};

/** Runs one stream. Several events go out in one write when nothing paces them, as a fast engine's would. */
async function stream(connection: Deno.Conn, { requestId, workItem }: Call): Promise<void> {
  const work = decodeWorkItem(workItem ?? new Uint8Array());
  const parameters = work.reader(WorkItemField.generate);
  let prompt = "0 0";
  for (let left = parameters.mapHeader(); left > 0; left--) {
    if (parameters.text() === "prompt") prompt = parameters.text();
    else parameters.skip();
  }
  const [count = 0, gapMs = 0] = prompt.split(" ").map(Number);
  await writeAll(connection, framed(requestId, event("in_progress")));
  for (let seq = 0; seq < count; seq++) {
    const done = seq === count - 1;
    const chunk = msgpack({
      kind: "chunk",
      request_id: work.requestId,
      attempt_id: "bench",
      seq,
      text_delta: String(nowUs()),
      done,
      ...(done ? { finish_reason: "stop" } : {}),
    });
    await writeAll(connection, framed(requestId, event("publish", work.replySubject, chunk)));
    if (gapMs > 0 && !done) await new Promise((resolve) => setTimeout(resolve, gapMs));
  }
  await writeAll(connection, framed(requestId, event("ack")));
  await writeAll(connection, framed(requestId, event("done")));
}

async function serve(connection: Deno.Conn): Promise<void> {
  const reader = new FrameReader(connection, BACKEND_FRAMES);
  try {
    for (let frame = await reader.readFrame(); frame !== undefined; frame = await reader.readFrame()) {
      const call = readCall(frame);
      if (call.method === "ProcessGenerate") await stream(connection, call);
      else await writeAll(connection, framed(call.requestId, ANSWERS[call.method] ?? {}));
    }
  } catch {
    // The peer has gone; its next connection starts anew.
  } finally {
    connection.close();
  }
}

const [path] = Deno.args;
if (path === undefined) throw new Error("usage: generate_stub.ts SOCKET");
const listener = Deno.listen({ transport: "unix", path });
await Deno.stdout.write(new TextEncoder().encode(`READY ${path}\n`));
for await (const connection of listener) void serve(connection);
