/** What the codecs cost, one item at a time, in this process alone: no sockets, no broker. */
import { ResultPublisher } from "../../src/publish/result_sender.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { INLINE_INPUT } from "../../src/wire/ipc/batch_items.ts";
import { writeRunBatchItem } from "../../src/wire/ipc/batch_items.ts";
import { readBatchOutcome } from "../../src/wire/ipc/batch_outcome.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { type BenchPart, median } from "../lib/part.ts";

/** Items of a batch, as in the hot-path benchmark. */
const BATCH = 64;
/** Floats of an embedding. */
const DIMENSIONS = 384;
/** Bytes of the hostile messages, and what one of them may cost. */
const HOSTILE_BYTES = 24_000;

function workItem(index: number): Uint8Array {
  const writer = new MsgpackWriter();
  const requestId = `0192f7a0-0000-7000-8000-${String(index).padStart(12, "0")}`;
  const fields: [string, string | number | boolean | null][] = [
    ["work_item_id", `${requestId}.0`],
    ["request_id", requestId],
    ["item_index", 0],
    ["total_items", 1],
    ["operation", "encode"],
    ["model_id", "BAAI/bge-m3"],
    ["profile_id", "default"],
    ["engine", "pytorch"],
    ["pool_name", "default"],
    ["machine_profile", "l4"],
    ["payload_ref", null],
    ["instruction", null],
    ["is_query", false],
    ["options", null],
    ["query_item", null],
    ["query_payload_ref", null],
    ["score_items", null],
    ["labels", null],
    ["output_schema", null],
    ["bundle_config_hash", ""],
    ["router_id", "gw-1"],
    ["reply_subject", `_INBOX.gw-1.${requestId}`],
    ["timestamp", 1_700_000_000.25],
    ["accepts_result_chunks", true],
  ];
  writer.mapHeader(fields.length + 2);
  for (const [name, value] of fields) {
    writer.text(name);
    if (value === null) writer.nil();
    else if (typeof value === "string") writer.text(value);
    else if (typeof value === "boolean") writer.bool(value);
    else if (Number.isInteger(value)) writer.integer(value);
    else writer.float64(value);
  }
  writer.text("item");
  writer.mapHeader(1);
  writer.text("text");
  writer.text("ten words that say about what a short sentence does");
  writer.text("output_types");
  writer.arrayHeader(1);
  writer.text("dense");
  return writer.take();
}

/** An answer to a batch; each outcome with a finished payload, or with floats to frame. */
function answerBytes(items: readonly Uint8Array[], typed: boolean): Uint8Array {
  const writer = new MsgpackWriter();
  const payload = new Uint8Array(90 + 4 * DIMENSIONS);
  writer.mapHeader(1);
  writer.text("outcomes");
  writer.arrayHeader(items.length);
  for (const bytes of items) {
    const work = decodeWorkItem(bytes);
    writer.mapHeader(7);
    writer.text("work_item_id");
    writer.text(work.workItemId);
    writer.text("request_id");
    writer.text(work.requestId);
    writer.text("item_index");
    writer.integer(0);
    writer.text("disposition");
    writer.text("publish_and_ack");
    writer.text("inference_ms");
    writer.float64(7.25);
    writer.text("units");
    writer.mapHeader(1);
    writer.text("input_tokens");
    writer.integer(12);
    writer.text(typed ? "raw_output" : "result_msgpack");
    if (typed) writeDense(writer);
    else writer.bin(payload);
  }
  return writer.take();
}

function writeDense(writer: MsgpackWriter): void {
  writer.mapHeader(1);
  writer.text("dense");
  writer.mapHeader(3);
  writer.text("values");
  writer.arrayHeader(DIMENSIONS);
  for (let i = 0; i < DIMENSIONS; i++) writer.float64(i / 7);
  writer.text("dim");
  writer.integer(DIMENSIONS);
  writer.text("normalize");
  writer.bool(false);
}

/** Nanoseconds of one call, the median of five rounds after two to warm up. */
function nanoseconds(callsPerRun: number, runs: number, run: () => void): number {
  const rounds: number[] = [];
  for (let round = 0; round < 7; round++) {
    const start = performance.now();
    for (let i = 0; i < runs; i++) run();
    rounds.push((performance.now() - start) * 1e6 / (runs * callsPerRun));
  }
  return median(rounds.slice(2));
}

/** Messages that try to make a reader work or allocate: deep nesting, counts and lengths that are lies, keys without end. */
function hostileMessages(): Uint8Array[] {
  const filled = (prefix: readonly number[], byte: number) => {
    const bytes = new Uint8Array(HOSTILE_BYTES).fill(byte);
    bytes.set(prefix);
    return bytes;
  };
  const keys = new MsgpackWriter(HOSTILE_BYTES);
  keys.mapHeader(6000);
  for (let i = 0; i < 6000 && keys.length < HOSTILE_BYTES - 8; i++) {
    keys.text(String(i % 100).padStart(2, "0"));
    keys.nil();
  }
  return [
    filled([], 0x91),
    filled([], 0x81),
    filled([0xde, 0x2e, 0xdf], 0xc0),
    filled([0xdf, 0xff, 0xff, 0xff, 0xff], 0xff),
    filled([0xdd, 0xff, 0xff, 0xff, 0xff], 0xc0),
    filled([0x81, 0xa4, 0x69, 0x74, 0x65, 0x6d, 0xdc, 0x5d, 0xb0], 0x90),
    filled([0xc6, 0xff, 0xff, 0xff, 0xff], 0x00),
    keys.take(),
  ];
}

function decodeHostile(message: Uint8Array): void {
  try {
    decodeWorkItem(message);
  } catch (thrown) {
    if (!(thrown instanceof MsgpackError)) throw thrown;
  }
}

/** Cost of the most expensive hostile message: milliseconds, and bytes of heap. */
function hostileCost(): { readonly ms: number; readonly bytes: number } {
  let ms = 0, bytes = 0;
  for (const message of hostileMessages()) {
    for (let round = 0; round < 5; round++) {
      const heap = Deno.memoryUsage().heapUsed + Deno.memoryUsage().external;
      const start = performance.now();
      decodeHostile(message);
      const took = performance.now() - start;
      // The first rounds compile; what a collection frees in between would count as negative.
      if (round > 1) ms = Math.max(ms, took);
      bytes = Math.max(bytes, Deno.memoryUsage().heapUsed + Deno.memoryUsage().external - heap);
    }
  }
  return { ms, bytes };
}

/** Micro-benchmark of `src/wire` and `src/publish`. */
export const wire: BenchPart = {
  name: "wire",
  run({ quick }) {
    const runs = quick ? 50 : 2000;
    const items = Array.from({ length: BATCH }, (_, i) => workItem(i));
    const works = items.map(decodeWorkItem);
    const finished = answerBytes(items, false), typed = answerBytes(items, true);
    const delivery = {
      source: "pool" as const,
      workerDirect: false,
      maxPayload: 1_048_576,
      publish() {},
      flush: () => Promise.resolve(),
    };
    const units = works.map((work) => ({ delivery, work, input: INLINE_INPUT }));
    const publisher = new ResultPublisher({ workerId: "worker-0", clock: systemClock });
    const batch = new MsgpackWriter(1 << 20);
    const publish = (bytes: Uint8Array) => {
      const answer = readBatchOutcome(new MsgpackReader(bytes));
      answer.outcomes.forEach((outcome, i) => {
        const unit = units[i];
        if (unit !== undefined) void publisher.outcome(unit, answer, outcome, "");
      });
    };
    const decodedAnswer = readBatchOutcome(new MsgpackReader(finished));
    const ns = {
      work_item_decode: nanoseconds(BATCH, runs, () => {
        for (const bytes of items) decodeWorkItem(bytes);
      }),
      run_batch_item_write: nanoseconds(BATCH, runs, () => {
        batch.clear();
        for (const unit of units) writeRunBatchItem(batch, "encode", unit);
      }),
      outcome_read: nanoseconds(BATCH, runs, () => void readBatchOutcome(new MsgpackReader(finished))),
      outcome_read_typed: nanoseconds(BATCH, runs / 4, () => void readBatchOutcome(new MsgpackReader(typed))),
      work_result_write: nanoseconds(BATCH, runs, () => {
        decodedAnswer.outcomes.forEach((outcome, i) => {
          const unit = units[i];
          if (unit !== undefined) void publisher.outcome(unit, decodedAnswer, outcome, "");
        });
      }),
      answer_to_results: nanoseconds(BATCH, runs, () => publish(finished)),
      answer_to_results_typed: nanoseconds(BATCH, runs / 4, () => publish(typed)),
    };
    const hostile = hostileCost();
    const rows = Object.entries(ns).map(([name, value]) => [name, Math.round(value)] as const);
    return Promise.resolve({
      result: {
        ns: Object.fromEntries(rows),
        hostile: { bytes_in: HOSTILE_BYTES, ms: Number(hostile.ms.toFixed(3)), heap_bytes: hostile.bytes },
      },
      lines: [
        "wire: nanoseconds per item (batches of 64, 384 floats)",
        ...rows.map(([name, value]) => `  ${name.padEnd(26)} ${String(value).padStart(7)}`),
        `  worst of ${hostileMessages().length} hostile messages of ${HOSTILE_BYTES} bytes: ` +
        `${hostile.ms.toFixed(3)} ms, ${(hostile.bytes / 1024).toFixed(0)} KiB of heap`,
      ],
    });
  },
};
