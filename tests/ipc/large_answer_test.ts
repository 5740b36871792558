import assert from "node:assert/strict";
import { reservationFor } from "../../src/ipc/chunk_transfer.ts";
import {
  BatchOutcomeStruct,
  DenseOutputStruct,
  ItemOutcomeStruct,
  RawOutputStruct,
} from "../../src/wire/ipc/schema.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { ManagedProcess } from "../harness/process.ts";
import { chunked, okAnswer } from "./frames.ts";
import { ScriptedBackend } from "./scripted_backend.ts";

const TOTAL = 100 * 1024 * 1024;
const OUTCOMES = 64;
const CHUNK = 4_194_304;

/** An answer to the second request with dense vectors of float64, as the real backend sends them, of about 100 MiB. */
function largeAnswer(floats: number): Uint8Array {
  const writer = new MsgpackWriter(TOTAL + 65_536);
  writer.mapHeader(5);
  writer.text("version");
  writer.integer(1);
  writer.text("request_id");
  writer.text("w-2");
  writer.text("ok");
  writer.bool(true);
  writer.text("body");
  writer.mapHeader(1);
  writer.raw(BatchOutcomeStruct.key.outcomes);
  writer.arrayHeader(OUTCOMES);
  for (let i = 0; i < OUTCOMES; i++) writeOutcome(writer, i, floats);
  writer.text("error");
  writer.nil();
  return writer.take();
}

function writeOutcome(writer: MsgpackWriter, index: number, floats: number): void {
  const { key } = ItemOutcomeStruct;
  writer.mapHeader(5);
  writer.raw(key.work_item_id);
  writer.text(`r.${index}`);
  writer.raw(key.request_id);
  writer.text("r");
  writer.raw(key.item_index);
  writer.integer(index);
  writer.raw(key.disposition);
  writer.text("publish_and_ack");
  writer.raw(key.raw_output);
  writer.mapHeader(1);
  writer.raw(RawOutputStruct.key.dense);
  writer.mapHeader(2);
  writer.raw(DenseOutputStruct.key.values);
  writer.arrayHeader(floats);
  for (let i = 0; i < floats; i++) writer.float64(1);
  writer.raw(DenseOutputStruct.key.dim);
  writer.integer(floats);
}

Deno.test("an answer of 100 MiB takes no more memory than it reserves", async () => {
  const floats = Math.floor(TOTAL / OUTCOMES / 9);
  const whole = largeAnswer(floats);
  const frames = await chunked("w-2", whole, CHUNK);
  await using backend = new ScriptedBackend(async (connection) => {
    for (;;) {
      const request = await connection.request();
      if (request === undefined) return;
      if (request.requestId === "w-1") await connection.send(okAnswer("w-1", { outcomes: [] }));
      else for (const frame of frames) await connection.send(frame);
    }
  });
  const program = fromFileUrl(new URL("large_answer_client.ts", import.meta.url));
  await using client = ManagedProcess.start({
    name: "client",
    command: [Deno.execPath(), "run", "--quiet", "--no-prompt", ...permissions(backend.path), program, backend.path],
  });
  const status = await client.end();
  assert.equal(status.code, 0, client.output());
  const result = JSON.parse(client.lines.find((line) => line.startsWith("{")) ?? "");
  assert.deepEqual(
    { bytes: result.bytes, outcomes: result.outcomes, sum: result.sum },
    { bytes: whole.length, outcomes: OUTCOMES, sum: OUTCOMES * floats },
  );
  const reserved = reservationFor(whole.length);
  assert.ok(result.growth > whole.length, `grew by ${result.growth} bytes: the measurement is broken`);
  assert.ok(result.growth <= reserved, `grew by ${result.growth} bytes, ${reserved} were reserved`);
});

/** Deno 2.9 wants the socket named among the network's permissions; older ones do not know that spelling. */
function permissions(path: string): string[] {
  const [major = 0, minor = 0] = Deno.version.deno.split(".").map(Number);
  const net = major > 2 || minor >= 9 ? [`--allow-net=unix:${path}`] : [];
  const config = fromFileUrl(new URL("../../deno.json", import.meta.url));
  return [`--config=${config}`, "--allow-read", `--allow-write=${path}`, ...net];
}
