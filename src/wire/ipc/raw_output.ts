/**
 * RawOutput and shared float16 buffers (spec/ipc.md 4.10, 4.11): typed results that the sidecar frames itself
 * (publish/framing). Number arrays are read into typed arrays at once: no array of boxed numbers is ever made.
 */
import { MsgpackError } from "../msgpack/errors.ts";
import { KeyTable } from "../msgpack/keys.ts";
import type { MsgpackReader } from "../msgpack/reader.ts";

/** A dense vector, already narrowed to float32 (round to nearest even). */
export interface DenseOutput {
  readonly kind: "dense";
  readonly values: Float32Array;
  readonly dim: number;
  readonly normalize: boolean;
}

/** Scores of the documents of one query, already narrowed to float32. */
export interface ScoreOutput {
  readonly kind: "score";
  readonly scores: Float32Array;
  readonly itemIds: readonly string[];
}

/** A sparse vector. */
export interface SparseOutput {
  readonly kind: "sparse";
  readonly indices: Int32Array;
  readonly values: Float32Array;
  readonly dims: number | undefined;
}

/** A matrix of token vectors, row-major. */
export interface MultivectorOutput {
  readonly kind: "multivector";
  readonly values: Float32Array;
  readonly numTokens: number;
  readonly tokenDims: number;
  readonly dtype: string;
  /** Little-endian halves; used as they are when not empty. */
  readonly valuesF16: Uint8Array;
}

/** The one member that counts, by the priority dense, score, sparse, multivector; `none` when no member is set. */
export type RawOutput = DenseOutput | ScoreOutput | SparseOutput | MultivectorOutput | { readonly kind: "none" };

/** One slice of a shared buffer. */
export interface BatchedF16Item {
  readonly workItemId: string;
  readonly byteOffset: number;
  readonly byteLength: number;
  readonly numTokens: number;
  readonly tokenDims: number;
}

/** A buffer of halves shared by several items of a batch. */
export interface BatchedF16Buffer {
  readonly valuesF16: Uint8Array;
  readonly items: readonly BatchedF16Item[];
}

const NONE: RawOutput = { kind: "none" };
const I32_MIN = -0x80000000, I32_MAX = 0x7fffffff;

/** Visits the known fields of a map; unknown keys are skipped, a known key twice is an error. At most 32 known keys. */
function readFields(reader: MsgpackReader, keys: KeyTable, read: (field: number) => void): number {
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    const field = reader.keySpan() ? keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength) : -1;
    if (field < 0) {
      reader.skip();
      continue;
    }
    if ((seen & (1 << field)) !== 0) throw keys.duplicate(field);
    seen |= 1 << field;
    read(field);
  }
  return seen;
}

/** Fails unless the first `count` fields have been seen. */
function requireFields(keys: KeyTable, seen: number, count: number): void {
  for (let field = 0; field < count; field++) if ((seen & (1 << field)) === 0) throw keys.missing(field);
}

const variants = new KeyTable(["dense", "score", "sparse", "multivector"]);

/** Reads a RawOutput map at the reader's position. */
export function readRawOutput(reader: MsgpackReader): RawOutput {
  const found: (RawOutput | undefined)[] = [undefined, undefined, undefined, undefined];
  readFields(reader, variants, (field) => {
    if (reader.nil()) return;
    found[field] = field === 0
      ? readDense(reader)
      : field === 1
      ? readScore(reader)
      : field === 2
      ? readSparse(reader)
      : readMultivector(reader);
  });
  return found[0] ?? found[1] ?? found[2] ?? found[3] ?? NONE;
}

const denseKeys = new KeyTable(["values", "dim", "normalize"]);

function readDense(reader: MsgpackReader): DenseOutput {
  let values = new Float32Array(0), dim = 0, normalize = false;
  const seen = readFields(reader, denseKeys, (field) => {
    if (field === 0) values = readFloats(reader);
    else if (field === 1) dim = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else normalize = reader.bool();
  });
  requireFields(denseKeys, seen, 2);
  return { kind: "dense", values, dim, normalize };
}

const scoreKeys = new KeyTable(["scores", "item_ids"]);

function readScore(reader: MsgpackReader): ScoreOutput {
  let scores = new Float32Array(0);
  const itemIds: string[] = [];
  const seen = readFields(reader, scoreKeys, (field) => {
    if (field === 0) scores = readFloats(reader);
    else for (let left = reader.arrayHeader(); left > 0; left--) itemIds.push(reader.text());
  });
  requireFields(scoreKeys, seen, 2);
  return { kind: "score", scores, itemIds };
}

const sparseKeys = new KeyTable(["indices", "values", "dims"]);

function readSparse(reader: MsgpackReader): SparseOutput {
  let indices = new Int32Array(0), values = new Float32Array(0);
  let dims: number | undefined;
  const seen = readFields(reader, sparseKeys, (field) => {
    if (field === 0) indices = readInt32s(reader);
    else if (field === 1) values = readFloats(reader);
    else if (!reader.nil()) dims = reader.unsigned(Number.MAX_SAFE_INTEGER);
  });
  requireFields(sparseKeys, seen, 2);
  return { kind: "sparse", indices, values, dims };
}

const multivectorKeys = new KeyTable(["values", "num_tokens", "token_dims", "dtype", "values_f16"]);

function readMultivector(reader: MsgpackReader): MultivectorOutput {
  let values = new Float32Array(0), numTokens = 0, tokenDims = 0, dtype = "float32";
  let valuesF16: Uint8Array = new Uint8Array(0);
  const seen = readFields(reader, multivectorKeys, (field) => {
    if (field === 0) values = readFloats(reader);
    else if (field === 1) numTokens = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else if (field === 2) tokenDims = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else if (field === 3) dtype = reader.nil() ? "float32" : reader.text();
    else valuesF16 = readBytes(reader);
  });
  requireFields(multivectorKeys, seen, 3);
  return { kind: "multivector", values, numTokens, tokenDims, dtype, valuesF16 };
}

const bufferKeys = new KeyTable(["values_f16", "items"]);

/** Reads `batched_f16_multivectors`. An odd buffer length makes the whole answer undecodable. */
export function readBatchedF16(reader: MsgpackReader): BatchedF16Buffer[] {
  const buffers: BatchedF16Buffer[] = [];
  for (let left = reader.arrayHeader(); left > 0; left--) {
    let valuesF16: Uint8Array = new Uint8Array(0);
    const items: BatchedF16Item[] = [];
    const seen = readFields(reader, bufferKeys, (field) => {
      if (field === 0) valuesF16 = readBytes(reader);
      else for (let more = reader.arrayHeader(); more > 0; more--) items.push(readBatchedItem(reader));
    });
    requireFields(bufferKeys, seen, 2);
    if (valuesF16.length % 2 !== 0) {
      throw new MsgpackError("range", `values_f16 has an odd length of ${valuesF16.length} bytes`);
    }
    buffers.push({ valuesF16, items });
  }
  return buffers;
}

const batchedItemKeys = new KeyTable(["work_item_id", "byte_offset", "byte_len", "num_tokens", "token_dims"]);

function readBatchedItem(reader: MsgpackReader): BatchedF16Item {
  let workItemId = "";
  const numbers = [0, 0, 0, 0, 0];
  const seen = readFields(reader, batchedItemKeys, (field) => {
    if (field === 0) workItemId = reader.text();
    else numbers[field] = reader.unsigned(Number.MAX_SAFE_INTEGER);
  });
  requireFields(batchedItemKeys, seen, 5);
  const [, byteOffset = 0, byteLength = 0, numTokens = 0, tokenDims = 0] = numbers;
  return { workItemId, byteOffset, byteLength, numTokens, tokenDims };
}

/** An array of floats (either size, or integers) as float32. The count is checked against the bytes left before allocation. */
function readFloats(reader: MsgpackReader): Float32Array<ArrayBuffer> {
  const count = reader.arrayHeader();
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = reader.float();
  return values;
}

function readInt32s(reader: MsgpackReader): Int32Array<ArrayBuffer> {
  const count = reader.arrayHeader();
  const values = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    const value = reader.integer();
    if (value < I32_MIN || value > I32_MAX) throw new MsgpackError("range", `index ${value} does not fit 32 bits`);
    values[i] = value;
  }
  return values;
}

/** A bin, a str taken as its bytes, or an array of byte-sized integers (7.2). */
function readBytes(reader: MsgpackReader): Uint8Array {
  const kind = reader.kind();
  if (kind === "array") {
    const count = reader.arrayHeader();
    const bytes = new Uint8Array(count);
    for (let i = 0; i < count; i++) bytes[i] = reader.unsigned(255);
    return bytes;
  }
  if (kind === "bin") reader.binSpan();
  else reader.textSpan();
  return reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
}
