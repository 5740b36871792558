/**
 * Framing of typed outputs into the bytes that the client gets (spec/preparation.md 8, spec/queue.md 3.2). In three steps, so that
 * the payload is written in place inside the result: {@link shapeFault} checks, {@link framedLength} tells the exact length for the
 * header, {@link writeFramed} writes.
 */
import type { DenseOutput, MultivectorOutput, RawOutput, ScoreOutput, SparseOutput } from "../wire/ipc/raw_output.ts";
import { arrayHeaderLength, strLength, unsignedLength, utf8Length } from "../wire/msgpack/lengths.ts";
import { encoded, encodedText, type MsgpackWriter } from "../wire/msgpack/writer.ts";
import { numpyLength, writeNumpyHead, type WrittenDtype } from "../wire/numpy.ts";
import { halvesOf } from "./half_values.ts";
import { normalized } from "./normalize.ts";

// Elements are copied as they lie in memory, and the wire is little-endian.
if (new Uint8Array(Uint16Array.of(1).buffer)[0] !== 1) throw new Error("a big-endian machine is not supported");

/** A typed output that can be framed. */
export type FramableOutput = Exclude<RawOutput, { readonly kind: "none" }>;

/** What is wrong with a typed output; undefined when it can be framed. The text goes to the client after `raw_output shape: `. */
export function shapeFault(raw: RawOutput): string | undefined {
  switch (raw.kind) {
    case "dense":
      return raw.values.length === raw.dim
        ? undefined
        : `dense output: expected values.len() == dim (${raw.dim}), got ${raw.values.length}`;
    case "score":
      return raw.scores.length === raw.itemIds.length
        ? undefined
        : `score output: scores.len() (${raw.scores.length}) != item_ids.len() (${raw.itemIds.length})`;
    case "sparse":
      return raw.indices.length === raw.values.length
        ? undefined
        : `sparse output: indices.len() (${raw.indices.length}) != values.len() (${raw.values.length})`;
    case "multivector":
      return multivectorFault(raw);
    case "none":
      return "msgpack write: raw_output had no recognised variant populated (forward-compat placeholder?)";
  }
}

function multivectorFault(raw: MultivectorOutput): string | undefined {
  const halves = raw.valuesF16.length;
  if (halves > 0 && raw.dtype !== "float16") {
    return `msgpack write: multivector values_f16 requires dtype="float16", got ${JSON.stringify(raw.dtype)}`;
  }
  if (raw.dtype !== "float16" && raw.dtype !== "float32") {
    return `msgpack write: unsupported multivector dtype ${JSON.stringify(raw.dtype)}; expected float32 or float16`;
  }
  const elements = raw.numTokens * raw.tokenDims;
  const given = halves > 0 ? halves : raw.values.length;
  if (given === (halves > 0 ? 2 * elements : elements)) return undefined;
  return `multivector output: values.len() (${given}) != rows (${raw.numTokens}) * cols (${raw.tokenDims})`;
}

const ID = encodedText("id");
const DENSE = encodedText("dense");
const SPARSE = encodedText("sparse");
const MULTIVECTOR = encodedText("multivector");
const DIMS = encodedText("dims");
const INDICES = encodedText("indices");
const VALUES = encodedText("values");
const TOKEN_DIMS = encodedText("token_dims");
const NUM_TOKENS = encodedText("num_tokens");
const DTYPE = encodedText("dtype");
const FLOAT32 = encoded((writer) => {
  writer.text("dtype");
  writer.text("float32");
});
const ITEM_ID = encodedText("item_id");
const SCORE = encodedText("score");
const RANK = encodedText("rank");

/**
 * Exact length in bytes of what {@link writeFramed} writes.
 *
 * @param callerId UTF-8 of the id that the caller gave the item; ignored for scores
 */
export function framedLength(raw: FramableOutput, callerId: Uint8Array | undefined): number {
  const id = callerId === undefined ? 0 : ID.length + strLength(callerId.length);
  switch (raw.kind) {
    case "dense":
      return 2 + id + DENSE.length + DIMS.length + unsignedLength(raw.dim) + FLOAT32.length + VALUES.length +
        numpyLength(raw.dim, undefined, raw.values.byteLength);
    case "sparse":
      return 2 + id + SPARSE.length + DIMS.length + (raw.dims === undefined ? 1 : unsignedLength(raw.dims)) +
        FLOAT32.length + INDICES.length + numpyLength(raw.indices.length, undefined, raw.indices.byteLength) +
        VALUES.length + numpyLength(raw.values.length, undefined, raw.values.byteLength);
    case "multivector":
      return 2 + id + MULTIVECTOR.length + TOKEN_DIMS.length + unsignedLength(raw.tokenDims) + NUM_TOKENS.length +
        unsignedLength(raw.numTokens) + DTYPE.length + strLength(raw.dtype.length) + VALUES.length +
        numpyLength(raw.numTokens, raw.tokenDims, matrixBytes(raw));
    case "score":
      return scoresLength(raw);
  }
}

/** Writes a typed output that {@link shapeFault} has passed. */
export function writeFramed(writer: MsgpackWriter, raw: FramableOutput, callerId: Uint8Array | undefined): void {
  if (raw.kind === "score") return writeScores(writer, raw);
  writer.mapHeader(callerId === undefined ? 1 : 2);
  if (callerId !== undefined) {
    writer.raw(ID);
    writer.textSpan(callerId, 0, callerId.length);
  }
  if (raw.kind === "dense") writeDense(writer, raw);
  else if (raw.kind === "sparse") writeSparse(writer, raw);
  else writeMultivector(writer, raw);
}

function writeDense(writer: MsgpackWriter, raw: DenseOutput): void {
  const values = raw.normalize ? normalized(raw.values) : raw.values;
  writer.raw(DENSE);
  writer.mapHeader(3);
  writer.raw(DIMS);
  writer.integer(raw.dim);
  writer.raw(FLOAT32);
  writer.raw(VALUES);
  writeVector(writer, "<f4", values);
}

function writeSparse(writer: MsgpackWriter, raw: SparseOutput): void {
  writer.raw(SPARSE);
  writer.mapHeader(4);
  writer.raw(DIMS);
  if (raw.dims === undefined) writer.nil();
  else writer.integer(raw.dims);
  writer.raw(FLOAT32);
  writer.raw(INDICES);
  writeVector(writer, "<i4", raw.indices);
  writer.raw(VALUES);
  writeVector(writer, "<f4", raw.values);
}

function writeVector(writer: MsgpackWriter, dtype: WrittenDtype, values: Float32Array | Int32Array): void {
  writeNumpyHead(writer, dtype, values.length, undefined, values.byteLength);
  writer.raw(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
}

function matrixBytes(raw: MultivectorOutput): number {
  return raw.numTokens * raw.tokenDims * (raw.dtype === "float16" ? 2 : 4);
}

function writeMultivector(writer: MsgpackWriter, raw: MultivectorOutput): void {
  writer.raw(MULTIVECTOR);
  writer.mapHeader(4);
  writer.raw(TOKEN_DIMS);
  writer.integer(raw.tokenDims);
  writer.raw(NUM_TOKENS);
  writer.integer(raw.numTokens);
  writer.raw(DTYPE);
  writer.text(raw.dtype);
  writer.raw(VALUES);
  const half = raw.dtype === "float16";
  writeNumpyHead(writer, half ? "<f2" : "<f4", raw.numTokens, raw.tokenDims, matrixBytes(raw));
  if (raw.valuesF16.length > 0) writer.raw(raw.valuesF16);
  else if (half) writer.raw(halvesOf(raw.values));
  else writer.raw(new Uint8Array(raw.values.buffer, raw.values.byteOffset, raw.values.byteLength));
}

/** Bytes of one score besides its id and rank: the map header, three keys, and a float64. */
const SCORE_BYTES = 1 + ITEM_ID.length + SCORE.length + 9 + RANK.length;

function scoresLength(raw: ScoreOutput): number {
  let length = arrayHeaderLength(raw.scores.length);
  for (let i = 0; i < raw.itemIds.length; i++) {
    length += SCORE_BYTES + strLength(utf8Length(raw.itemIds[i] as string)) + unsignedLength(i);
  }
  return length;
}

function writeScores(writer: MsgpackWriter, raw: ScoreOutput): void {
  const { scores, itemIds } = raw;
  writer.arrayHeader(scores.length);
  const order = rankOrder(scores);
  for (let rank = 0; rank < order.length; rank++) {
    const index = order[rank] as number;
    writer.mapHeader(3);
    writer.raw(ITEM_ID);
    writer.text(itemIds[index] as string);
    writer.raw(SCORE);
    writer.float64(scores[index] as number);
    writer.raw(RANK);
    writer.integer(rank);
  }
}

/** Indexes by descending score; equal scores, and NaN after all others, keep their order. */
function rankOrder(scores: Float32Array): number[] {
  return Array.from(scores, (_, index) => index).sort((a, b) => {
    const left = scores[a] as number, right = scores[b] as number;
    if (Number.isNaN(left) || Number.isNaN(right)) return Number(Number.isNaN(left)) - Number(Number.isNaN(right));
    return right > left ? 1 : right < left ? -1 : 0;
  });
}
