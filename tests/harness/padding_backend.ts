/**
 * A backend that pads, as a program of its own: `padding_backend.ts SOCKET BASE_MS US_PER_CHARACTER`. It runs one batch at a time and
 * takes BASE_MS plus US_PER_CHARACTER for each character of `items × longest text`; only score items have a text here.
 */
import { BACKEND_FRAMES, FrameReader, writeAll } from "../../src/wire/frames.ts";
import { okAnswer, pingAnswer } from "../ipc/frames.ts";
import { decodeNotation } from "./notation.ts";

interface BatchItem {
  readonly work_item_id: string;
  readonly request_id: string;
  readonly item_index: number;
  readonly score: { readonly score_items: readonly { readonly text: string }[] } | null;
}

interface Request {
  readonly method: string;
  readonly request_id: string;
  readonly body: { readonly items?: readonly BatchItem[] };
}

const [path, baseMs, usPerCharacter] = Deno.args;
if (path === undefined) throw new Error("usage: padding_backend.ts SOCKET BASE_MS US_PER_CHARACTER");

/** Settles when the batch before has ended. */
let device: Promise<void> = Promise.resolve();

/** Runs a batch. @returns the milliseconds that it took. */
async function compute(items: readonly BatchItem[]): Promise<number> {
  const longest = Math.max(...items.map((item) => item.score?.score_items[0]?.text.length ?? 0));
  const ms = Number(baseMs) + Number(usPerCharacter) * items.length * longest / 1000;
  let tookMs = 0;
  device = device.then(async () => {
    const startedAt = performance.now();
    await new Promise((resolve) => setTimeout(resolve, ms));
    tookMs = performance.now() - startedAt;
  });
  await device;
  return tookMs;
}

async function answer({ method, request_id, body }: Request): Promise<Uint8Array> {
  switch (method) {
    case "Ping":
      return pingAnswer(request_id);
    case "EnsureModelReady":
      return okAnswer(request_id, { state: "ready", batch_budget: null, descriptor: { supports_run_batch: true } });
    case "RunBatch": {
      const items = body.items ?? [];
      const inference_ms = { $f64: await compute(items) };
      const outcomes = items.map(({ work_item_id, request_id, item_index }) => ({
        ...{ work_item_id, request_id, item_index, disposition: "publish_and_ack", inference_ms },
        result_msgpack: { $bin: "80" },
      }));
      return okAnswer(request_id, { outcomes });
    }
    default:
      return okAnswer(request_id, method === "Drain" ? { acknowledged: true } : {});
  }
}

async function serve(connection: Deno.Conn): Promise<void> {
  const reader = new FrameReader(connection, BACKEND_FRAMES);
  try {
    for (let frame = await reader.readFrame(); frame !== undefined; frame = await reader.readFrame()) {
      await writeAll(connection, await answer(decodeNotation(frame) as Request));
    }
  } catch {
    // The peer has gone; its next connection starts anew.
  } finally {
    connection.close();
  }
}

const listener = Deno.listen({ transport: "unix", path });
await Deno.stdout.write(new TextEncoder().encode(`READY ${path}\n`));
for await (const connection of listener) void serve(connection);
