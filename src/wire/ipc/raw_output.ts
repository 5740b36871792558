/**
 * RawOutput and shared float16 buffers (spec/ipc.md 4.10, 4.11): typed results that the sidecar frames itself
 * (publish/framing). Number arrays are read into typed arrays at once: no array of boxed numbers is ever made.
 */
import { MsgpackError } from "../msgpack/errors.ts";
import { readFloat32Array } from "../msgpack/float_array.ts";
import type { MsgpackReader } from "../msgpack/reader.ts";
import {
  BatchedF16Item as BatchedF16ItemStruct,
  BatchedF16Output,
  DenseOutputStruct,
  MultivectorOutputStruct,
  RawOutputStruct,
  ScoreOutputStruct,
  SparseOutputStruct,
} from "./schema.ts";
import { readStruct } from "./struct.ts";

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

const D = DenseOutputStruct.index;
const S = ScoreOutputStruct.index;
const P = SparseOutputStruct.index;
const M = MultivectorOutputStruct.index;
const B = BatchedF16ItemStruct.index;

const NONE: RawOutput = { kind: "none" };
const I32_MIN = -0x80000000, I32_MAX = 0x7fffffff;

/** Readers of the members, in the order of the table, which is the order of their priority. */
const READERS: readonly ((reader: MsgpackReader) => RawOutput)[] = [readDense, readScore, readSparse, readMultivector];

/** Reads a RawOutput map at the reader's position. */
export function readRawOutput(reader: MsgpackReader): RawOutput {
  const found: (RawOutput | undefined)[] = [];
  readStruct(reader, RawOutputStruct, (field) => {
    if (reader.nil()) return;
    found[field] = READERS[field]?.(reader);
  });
  return found.find((member) => member !== undefined) ?? NONE;
}

function readDense(reader: MsgpackReader): DenseOutput {
  let values = new Float32Array(0), dim = 0, normalize = false;
  readStruct(reader, DenseOutputStruct, (field) => {
    if (field === D.values) values = readFloat32Array(reader);
    else if (field === D.dim) dim = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else normalize = reader.bool();
  });
  return { kind: "dense", values, dim, normalize };
}

function readScore(reader: MsgpackReader): ScoreOutput {
  let scores = new Float32Array(0);
  const itemIds: string[] = [];
  readStruct(reader, ScoreOutputStruct, (field) => {
    if (field === S.scores) scores = readFloat32Array(reader);
    else for (let left = reader.arrayHeader(); left > 0; left--) itemIds.push(reader.text());
  });
  return { kind: "score", scores, itemIds };
}

function readSparse(reader: MsgpackReader): SparseOutput {
  let indices = new Int32Array(0), values = new Float32Array(0);
  let dims: number | undefined;
  readStruct(reader, SparseOutputStruct, (field) => {
    if (field === P.indices) indices = readInt32s(reader);
    else if (field === P.values) values = readFloat32Array(reader);
    else if (!reader.nil()) dims = reader.unsigned(Number.MAX_SAFE_INTEGER);
  });
  return { kind: "sparse", indices, values, dims };
}

function readMultivector(reader: MsgpackReader): MultivectorOutput {
  let values = new Float32Array(0), numTokens = 0, tokenDims = 0, dtype = "float32";
  let valuesF16: Uint8Array = new Uint8Array(0);
  readStruct(reader, MultivectorOutputStruct, (field) => {
    if (field === M.values) values = readFloat32Array(reader);
    else if (field === M.num_tokens) numTokens = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else if (field === M.token_dims) tokenDims = reader.unsigned(Number.MAX_SAFE_INTEGER);
    else if (field === M.dtype) dtype = reader.nil() ? "float32" : reader.text();
    else valuesF16 = readBytes(reader);
  });
  return { kind: "multivector", values, numTokens, tokenDims, dtype, valuesF16 };
}

/** Reads `batched_f16_multivectors`. An odd buffer length makes the whole answer undecodable. */
export function readBatchedF16(reader: MsgpackReader): BatchedF16Buffer[] {
  const buffers: BatchedF16Buffer[] = [];
  for (let left = reader.arrayHeader(); left > 0; left--) {
    let valuesF16: Uint8Array = new Uint8Array(0);
    const items: BatchedF16Item[] = [];
    readStruct(reader, BatchedF16Output, (field) => {
      if (field === BatchedF16Output.index.values_f16) valuesF16 = readBytes(reader);
      else for (let more = reader.arrayHeader(); more > 0; more--) items.push(readBatchedItem(reader));
    });
    if (valuesF16.length % 2 !== 0) {
      throw new MsgpackError("range", `values_f16 has an odd length of ${valuesF16.length} bytes`);
    }
    buffers.push({ valuesF16, items });
  }
  return buffers;
}

function readBatchedItem(reader: MsgpackReader): BatchedF16Item {
  let workItemId = "";
  const numbers: number[] = [];
  readStruct(reader, BatchedF16ItemStruct, (field) => {
    if (field === B.work_item_id) workItemId = reader.text();
    else numbers[field] = reader.unsigned(Number.MAX_SAFE_INTEGER);
  });
  const [byteOffset = 0, byteLength = 0, numTokens = 0, tokenDims = 0] = numbers.slice(B.byte_offset);
  return { workItemId, byteOffset, byteLength, numTokens, tokenDims };
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
