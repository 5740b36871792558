/** Framing beyond the vectors: announced lengths, odd values, and what is chosen when several outputs are there. */
import assert from "node:assert/strict";
import { framedLength, shapeFault, writeFramed } from "../../src/publish/framing.ts";
import { HalfSlices, resultSource } from "../../src/publish/selection.ts";
import type { MultivectorOutput, RawOutput } from "../../src/wire/ipc/raw_output.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeNotation, readValue } from "../harness/notation.ts";
import { SeededRandom } from "../sim/seeded_random.ts";
import { below } from "../wire/random_values.ts";
import { answerOf } from "./rig.ts";

type Framable = Exclude<RawOutput, { readonly kind: "none" }>;

function framed(raw: Framable, callerId?: string): Uint8Array {
  assert.equal(shapeFault(raw), undefined);
  const writer = new MsgpackWriter();
  writeFramed(writer, raw, callerId === undefined ? undefined : new TextEncoder().encode(callerId));
  return writer.take();
}

function randomOutput(random: SeededRandom): Framable {
  const count = random.pick([0, 1, 31, 32, 63, 64, 127, 128, 255, 256, 300, 16384, 20_000]);
  const values = Float32Array.from({ length: count }, (_, i) => i / 7);
  switch (below(random, 4)) {
    case 0:
      return { kind: "dense", values, dim: count, normalize: random.chance(0.5) };
    case 1: {
      const known = random.pick([0, 127, 128, 65_535, 65_536, 2 ** 32, Number.MAX_SAFE_INTEGER]);
      const dims = random.chance(0.2) ? undefined : known;
      return { kind: "sparse", indices: Int32Array.from({ length: count }, (_, i) => i - 5), values, dims };
    }
    case 2: {
      const rows = random.pick([1, 2, 300]), dtype = random.pick(["float32", "float16"]);
      const elements = rows * below(random, 200);
      const bytes = dtype === "float16" && random.chance(0.5) ? new Uint8Array(2 * elements) : new Uint8Array(0);
      const floats = bytes.length > 0 ? new Float32Array(0) : new Float32Array(elements);
      return {
        kind: "multivector",
        values: floats,
        numTokens: rows,
        tokenDims: elements / rows,
        dtype,
        valuesF16: bytes,
      };
    }
    default: {
      const itemIds = Array.from({ length: Math.min(count, 300) }, () => "日é😀a".repeat(below(random, 20)));
      return { kind: "score", scores: values.slice(0, itemIds.length), itemIds };
    }
  }
}

Deno.test("the announced length is the written one, for every kind and id", () => {
  const random = new SeededRandom(61);
  const kinds = new Set<string>();
  for (let i = 0; i < 300; i++) {
    const raw = randomOutput(random);
    kinds.add(raw.kind);
    const callerId = random.chance(0.3) ? undefined : "é".repeat(below(random, 40));
    const bytes = framed(raw, callerId);
    const id = callerId === undefined ? undefined : new TextEncoder().encode(callerId);
    assert.equal(bytes.length, framedLength(raw, id), raw.kind);
    // Exactly one value, and the id first unless it is a list of scores.
    const value = readValue(bytes);
    if (raw.kind === "score") assert.equal(value.type, "array");
    else assert.ok(value.type === "map" && value.pairs.length === (callerId === undefined ? 1 : 2));
  }
  assert.equal(kinds.size, 4);
});

/** The ids of framed scores, by rank. */
function ranking(scores: readonly number[]): string[] {
  const itemIds = scores.map((_, i) => `${i}`);
  const rows = decodeNotation(framed({ kind: "score", scores: Float32Array.from(scores), itemIds }));
  return (rows as { item_id: string; rank: number }[]).map(({ item_id: id, rank }, i) => {
    assert.equal(rank, i);
    return id;
  });
}

Deno.test("scores are ranked from high to low, equal ones in their order, NaN last", () => {
  assert.deepEqual(ranking([NaN, 1, NaN, 2]), ["3", "1", "0", "2"]);
  assert.deepEqual(ranking([-Infinity, NaN, Infinity, 0, -0]), ["2", "3", "4", "0", "1"]);
  const random = new SeededRandom(62);
  for (let i = 0; i < 50; i++) {
    const scores = Array.from({ length: 40 }, () => random.pick([0, 0.5, 1, NaN, -1]));
    const order = ranking(scores).map(Number);
    const value = (index: number) => Number.isNaN(scores[index]) ? -Infinity : scores[index] ?? 0;
    for (let rank = 1; rank < order.length; rank++) {
      const [before = 0, after = 0] = [order[rank - 1], order[rank]];
      assert.ok(value(before) > value(after) || (value(before) === value(after) && before < after));
    }
  }
});

Deno.test("a vector without a positive norm stays as it is", () => {
  for (const values of [[0, -0], [NaN, 1]]) {
    const raw = (normalize: boolean): Framable => ({
      kind: "dense",
      values: Float32Array.from(values),
      dim: values.length,
      normalize,
    });
    assert.deepEqual(framed(raw(true)), framed(raw(false)), String(values));
  }
  // The input is the backend's and is not changed.
  const values = Float32Array.of(3, 4);
  framed({ kind: "dense", values, dim: 2, normalize: true });
  assert.deepEqual([...values], [3, 4]);
});

Deno.test("shapes whose product does not fit are faults, not allocations", () => {
  const raw: MultivectorOutput = {
    kind: "multivector",
    values: new Float32Array(0),
    numTokens: 2 ** 40,
    tokenDims: 2 ** 40,
    dtype: "float32",
    valuesF16: new Uint8Array(0),
  };
  assert.match(shapeFault(raw) ?? "", /values.len\(\) \(0\) != rows \(1099511627776\) \* cols \(1099511627776\)/);
});

Deno.test("a slice of a shared buffer comes before raw_output, and after result bytes", () => {
  const buffers = [{
    values_f16: { $bin: "003c0040" },
    items: [{ work_item_id: "req-1.0", byte_offset: 0, byte_len: 4, num_tokens: 1, token_dims: 2 }],
  }];
  const raw = { dense: { values: [{ $f64: 1 }], dim: 1 } };
  const sourceOf = (outcome: Record<string, unknown>) => {
    const answer = answerOf([outcome], buffers);
    const [first] = answer.outcomes;
    assert.ok(first !== undefined);
    return resultSource(answer, first, new HalfSlices(answer.batchedF16));
  };
  const sliced = sourceOf({ raw_output: raw });
  assert.ok(sliced.kind === "framed" && sliced.raw.kind === "multivector");
  assert.equal(sourceOf({ raw_output: raw, result_msgpack: { $bin: "80" } }).kind, "as_is");
  assert.equal(sourceOf({ disposition: "publish_error_and_ack" }).kind, "as_is");
  // A slice for an item that is not in the answer changes nothing.
  const other = sourceOf({ work_item_id: "req-1.7", raw_output: raw });
  assert.ok(other.kind === "framed" && other.raw.kind === "dense");
});

Deno.test("an id in two shared buffers is a fault of that item alone", () => {
  const item = (id: string) => ({ work_item_id: id, byte_offset: 0, byte_len: 2, num_tokens: 1, token_dims: 1 });
  const answer = answerOf([{}, {}], [
    { values_f16: { $bin: "003c" }, items: [item("req-1.0"), item("req-1.1")] },
    { values_f16: { $bin: "003c" }, items: [item("req-1.0")] },
  ]);
  const slices = new HalfSlices(answer.batchedF16);
  assert.deepEqual(answer.outcomes.map((outcome) => resultSource(answer, outcome, slices).kind), ["fault", "framed"]);
});
