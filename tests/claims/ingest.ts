/** Claims on the local-ingest vectors; whole requests go through a connection with the real dispatch behind it. */
import assert from "node:assert/strict";
import { validateWork } from "../../src/local_ingest/validation.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { Pace } from "../../src/runtime/pace.ts";
import { digestPieces, payloadDigest } from "../../src/wire/ingest/digest.ts";
import { IngestLimits } from "../../src/wire/ingest/limits.ts";
import { decodeRequest, EMPTY_BODY, type IngestBody, writeRequest } from "../../src/wire/ingest/request.ts";
import {
  ChunkFrames,
  decodeResponse,
  emptyFrame,
  errorFrame,
  finalFrame,
  type IngestResponse,
  type OutgoingFrame,
  resultsFrame,
} from "../../src/wire/ingest/response.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkResult, type WorkResult } from "../../src/wire/work_result_reader.ts";
import { FrameInput } from "../../src/local_ingest/frame_input.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorClaim } from "../harness/vectors.ts";
import { msgpack, type Value, workItemFields } from "../harness/work_items.ts";
import { framed, IngestRig } from "../local_ingest/rig.ts";
import { settle } from "../sim/virtual_clock.ts";
import { MemoryStream } from "../local_ingest/memory_stream.ts";

type Json = Record<string, unknown>;

function listed(file: string, check: (one: Json) => void | Promise<void>): VectorClaim {
  return {
    files: [`ingest/${file}.json`],
    *cases(data) {
      for (const one of data as Json[]) yield { name: String(one["name"]), check: () => check(one) };
    },
  };
}

function joined(pieces: Iterable<Uint8Array>): string {
  return [...pieces].map(toHex).join("");
}

function bodyOf(input: Json): IngestBody {
  return {
    ...EMPTY_BODY,
    lane: String(input["lane"]),
    endpoint: String(input["endpoint"]),
    model: String(input["model"]),
    engine: String(input["engine"]),
    admissionPool: String(input["admission_pool"]),
    bundleConfigHash: String(input["bundle_config_hash"]),
    requestId: String(input["request_id"]),
    dispatchContext: fromHex(String(input["dispatch_context"])),
    params: fromHex(String(input["params"])),
    items: fromHex(String(input["items"])),
    timeoutMs: timeoutOf(input["timeout_ms"]),
  };
}

/** The greatest timeout does not fit a JSON number exactly: reading it rounds up by one. */
function timeoutOf(value: unknown): bigint {
  const rounded = BigInt(Number(value));
  return rounded === 2n ** 63n ? rounded - 1n : rounded;
}

function checkDigest(one: Json): void {
  const body = bodyOf(one["input"] as Json);
  assert.equal(joined(digestPieces(body)), one["preimage_hex"]);
  assert.equal(toHex(payloadDigest(body)), one["expected"]);
}

/** What a server does with bytes: waits for more, answers, or closes; with `end`, what it does when nothing more comes. */
async function reaction(bytes: Uint8Array, end: boolean): Promise<string> {
  const client = new IngestRig().connect();
  await client.send(bytes);
  if (client.end?.kind === "broken") return "close";
  if (client.responses().length > 0) return finished(client, "answer");
  if (!end) {
    const waits = client.end === undefined;
    // Nothing of an announced body is allocated before its bytes come.
    assert.ok(client.stream.largestRead <= 65_536, `${client.stream.largestRead} bytes were made ready`);
    return finished(client, waits ? "wait_for_body" : "close");
  }
  client.stream.end();
  return (await client.ended).kind === "ended_by_client" ? "close_clean" : "close";
}

async function finished(client: ReturnType<IngestRig["connect"]>, what: string): Promise<string> {
  client.stream.end();
  await client.ended;
  return what;
}

/** Names of the vectors for what `IngestLimits` calls otherwise. */
function limitName(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** A map with a binary of `bytes` bytes at a path such as `item.images[0].data` or `item.images[0..1].data`. */
function itemWithBinary(path: string, bytes: number): { [key: string]: Value } {
  const binary = new Uint8Array(bytes);
  const build = (parts: readonly string[]): Value => {
    const [part, ...rest] = parts;
    if (part === undefined) return binary;
    const match = /^(\w+)(?:\[(\d+)(?:\.\.(\d+))?\])?$/.exec(part);
    assert.ok(match, `unknown path part ${part}`);
    const [, name = "", first, last] = match;
    if (first === undefined) return { [name]: build(rest) };
    const count = Number(last ?? first) + 1;
    const filled = (index: number) => index >= Number(first) ? build(rest) : {};
    return { [name]: Array.from({ length: count }, (_, index) => filled(index)) };
  };
  return build(path.replaceAll("[0..1]", "[0~1]").split(".").map((part) => part.replace("~", ".."))) as {
    [key: string]: Value;
  };
}

async function checkMediaLimit(one: Json): Promise<void> {
  const input = one["input"] as { at: string; bytes: number };
  const body: IngestBody = {
    ...EMPTY_BODY,
    endpoint: "encode",
    model: "test/model",
    requestId: "req-1",
    dispatchContext: Uint8Array.of(1),
    items: msgpack([workItemFields({ engine: "", ...itemWithBinary(input.at, input.bytes) })]),
  };
  const validation = await validateWork({ ...body, payloadDigest: payloadDigest(body) }, new Pace(systemClock));
  assert.deepEqual(validation.ok ? { ok: true } : validation, one["expected"]);
}

async function checkRequestFrame(one: Json): Promise<void> {
  const bytes = fromHex(String(one["hex"]));
  const expected = one["expected"] as Json;
  const stream = new MemoryStream();
  stream.feed(bytes);
  const input = new FrameInput(stream);
  const length = await input.header();
  assert.ok(length !== undefined);
  const frame = await input.body(length);
  assert.ok(frame !== undefined);
  const request = decodeRequest(frame);
  // What a client of ours writes is the same: the order of the keys is the one of the vectors.
  const { id, op, body } = request;
  if (op === "publish_work") {
    const writer = new MsgpackWriter();
    writeRequest(writer, id, op, body);
    if (!joined([frame]).includes(toHex(new TextEncoder().encode("traceparent")))) {
      assert.equal(toHex(writer.view()), toHex(frame));
    }
  }
  if ("body_bytes_at_most" in expected) {
    assert.ok(length <= Number(expected["body_bytes_at_most"]) && length <= IngestLimits.controlReserveBytes);
    assert.equal(op, "cancel");
    assert.equal(new TextEncoder().encode(body.requestId).length, IngestLimits.requestIdBytes);
    return;
  }
  if ("response" in expected) {
    const client = new IngestRig().connect();
    await client.send(bytes);
    assert.deepEqual(client.responses().map(plainResponse), [expected["response"]]);
    return await finished(client, "").then(() => {});
  }
  assert.equal(id, BigInt(expected["id"] as number));
  assert.equal(op, expected["op"]);
  if ("request_id" in expected) assert.equal(body.requestId, expected["request_id"]);
  if ("digest_ok" in expected) {
    assert.equal(toHex(payloadDigest(body)) === toHex(body.payloadDigest), expected["digest_ok"]);
  }
}

/** An answer in the notation of the vectors; only what is read from it counts. */
function plainResponse(response: IngestResponse): Json {
  const id = Number(response.id);
  if (!response.ok) return { id, ok: false, error: response.error, body: {} };
  assert.equal(response.body.kind, "empty");
  return { id, ok: true, error: null, body: {} };
}

function hexOf(value: unknown): Uint8Array {
  return fromHex(String((value as Json)["$bin"]));
}

function responseOf(input: Json): OutgoingFrame {
  const id = BigInt(input["id"] as number);
  const body = input["body"] as Json;
  if (input["ok"] !== true) return errorFrame(id, String(input["error"]));
  if ("results" in body) return resultsFrame(id, elements(hexOf(body["results"])));
  if ("final" in body) return finalFrame(id, Number((body["outcome"] as Json)["chunks"]));
  if (!("chunk" in body)) return emptyFrame(id);
  const frame = new ChunkFrames(id).frame(hexOf(body["chunk"]), Number(body["seq"]));
  assert.ok(frame !== undefined);
  return frame;
}

/** The bytes of each element of a MessagePack array. */
function elements(bytes: Uint8Array): Uint8Array[] {
  const reader = new MsgpackReader(bytes);
  const found: Uint8Array[] = [];
  for (let left = reader.arrayHeader(); left > 0; left--) {
    const start = reader.pos;
    reader.skip();
    found.push(bytes.subarray(start, reader.pos));
  }
  reader.expectEnd();
  return found;
}

function checkResponseFrame(one: Json): void {
  const { pieces, length } = responseOf(one["input"] as Json);
  const hex = joined(pieces);
  assert.equal(hex, one["expected"]);
  assert.equal(hex.length, 2 * length);
  const decoded = decodeResponse(fromHex(hex).subarray(4));
  assert.equal(decoded.id, BigInt((one["input"] as Json)["id"] as number));
}

async function checkValidation(one: Json): Promise<void> {
  const rig = new IngestRig();
  const client = rig.connect();
  await client.send(framed(fromHex(String(one["hex"]))));
  await rig.clock.advance(1000);
  await settle();
  const [response, ...more] = client.responses();
  assert.ok(response !== undefined, "no answer");
  assert.equal(more.length, 0);
  const expected = one["expected"] as Json;
  assert.equal(response.ok, expected["ok"], JSON.stringify(response.ok ? "ok" : response.error));
  if (!response.ok) {
    if ("error_prefix" in expected) assert.ok(response.error.startsWith(String(expected["error_prefix"])));
    else assert.equal(response.error, expected["error"]);
  } else if ("results" in expected) {
    assert.ok(response.body.kind === "results");
    assert.deepEqual(elements(response.body.results).map(plainResult), expected["results"]);
  }
  await finished(client, "");
  const { counts, outstanding } = rig.parts.ledger;
  assert.equal(outstanding, 0);
  assert.equal(counts.refused, 0);
}

function plainResult(bytes: Uint8Array): Json {
  const result: WorkResult = decodeWorkResult(bytes);
  assert.equal(result.workerDirect, true);
  assert.equal(result.workerId, "worker-0");
  return { success: result.success, error_code: result.errorCode, error: result.error };
}

/** All claims on `vectors/ingest`. */
export const ingestClaims: VectorClaim[] = [
  listed("digests", checkDigest),
  listed("envelope-decode", async (one) => {
    const expected = String(one["expected"]);
    assert.equal(await reaction(fromHex(String(one["hex"])), expected !== "wait_for_body"), expected);
  }),
  listed("limits", (one) => {
    assert.equal((IngestLimits as Record<string, number>)[limitName(String(one["name"]))], one["expected"]);
  }),
  listed("media-limits", checkMediaLimit),
  listed("request-frames", checkRequestFrame),
  listed("response-frames", checkResponseFrame),
  listed("validation", checkValidation),
];
