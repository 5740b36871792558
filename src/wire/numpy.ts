/**
 * Arrays as msgpack-numpy writes them (spec/preparation.md 11, spec/ipc.md 7.3): a map whose keys are bin. The sidecar writes
 * float32, float16 and int32; the reader is for clients and tests and takes what the product's own readers take. Never a pickled
 * object.
 */
import { MsgpackError } from "./msgpack/errors.ts";
import { KeyTable } from "./msgpack/keys.ts";
import { binLength, unsignedLength } from "./msgpack/lengths.ts";
import type { MsgpackReader } from "./msgpack/reader.ts";
import { MsgpackWriter } from "./msgpack/writer.ts";
import { halfToNumber } from "./half.ts";

/** Element types that are written; the two byte-sized ones by backends only. */
export type WrittenDtype = "<f4" | "<f2" | "<i4" | "|i1" | "|u1";

function bin(writer: MsgpackWriter, text: string): void {
  writer.bin(new TextEncoder().encode(text));
}

/** Everything before the shape. */
function prefix(dtype: string): Uint8Array {
  const writer = new MsgpackWriter();
  writer.mapHeader(5);
  bin(writer, "nd");
  writer.bool(true);
  bin(writer, "type");
  writer.text(dtype);
  bin(writer, "kind");
  bin(writer, "");
  bin(writer, "shape");
  return writer.take();
}

const PREFIXES: Record<WrittenDtype, Uint8Array> = {
  "<f4": prefix("<f4"),
  "<f2": prefix("<f2"),
  "<i4": prefix("<i4"),
  "|i1": prefix("|i1"),
  "|u1": prefix("|u1"),
};
const PREFIX_BYTES = PREFIXES["<f4"].length;

const DATA_KEY = (() => {
  const writer = new MsgpackWriter();
  bin(writer, "data");
  return writer.take();
})();

/** Length in bytes of what {@link writeNumpyHead} and its data make. */
export function numpyLength(rows: number, columns: number | undefined, dataBytes: number): number {
  const shape = 1 + unsignedLength(rows) + (columns === undefined ? 0 : unsignedLength(columns));
  return PREFIX_BYTES + shape + DATA_KEY.length + binLength(dataBytes);
}

/**
 * Writes an array up to its data, of which exactly `dataBytes` bytes must follow, row-major and little-endian.
 *
 * @param columns undefined for a vector
 */
export function writeNumpyHead(
  writer: MsgpackWriter,
  dtype: WrittenDtype,
  rows: number,
  columns: number | undefined,
  dataBytes: number,
): void {
  writer.raw(PREFIXES[dtype]);
  writer.arrayHeader(columns === undefined ? 1 : 2);
  writer.integer(rows);
  if (columns !== undefined) writer.integer(columns);
  writer.raw(DATA_KEY);
  writer.binHeader(dataBytes);
}

/** An array, or a scalar when the shape is empty. */
export interface NumpyArray {
  /** Byte order, kind and size, e.g. `<f4`. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Elements as they came, a view of the bytes read. */
  readonly data: Uint8Array;
}

const MAX_DIMENSIONS = 8;
const DTYPES = /^(?:[<>](?:f[248]|[iu][248])|\|[biu]1)$/;
const keys = new KeyTable(["nd", "type", "kind", "shape", "data"]);
const ND = 0, TYPE = 1, KIND = 2, SHAPE = 3;

/** Reads an array or scalar at the reader's position, whose keys must be bin. */
export function readNumpy(reader: MsgpackReader): NumpyArray {
  let nd: boolean | undefined, dtype: string | undefined, shape: number[] | undefined, data: Uint8Array | undefined;
  let seen = 0;
  for (let left = reader.mapHeader(); left > 0; left--) {
    reader.binSpan();
    const field = keys.indexOf(reader.bytes, reader.spanAt, reader.spanLength);
    if (field < 0) throw new MsgpackError("field", "unknown key in a numpy array");
    if ((seen & (1 << field)) !== 0) throw keys.duplicate(field);
    seen |= 1 << field;
    if (field === ND) nd = reader.bool();
    else if (field === TYPE) dtype = readDtype(reader);
    else if (field === KIND) readKind(reader);
    else if (field === SHAPE) shape = readShape(reader);
    else {
      reader.binSpan();
      data = reader.bytes.subarray(reader.spanAt, reader.spanAt + reader.spanLength);
    }
  }
  if (nd === undefined) throw keys.missing(ND);
  if (dtype === undefined) throw keys.missing(TYPE);
  if (data === undefined) throw keys.missing(4);
  if (nd && shape === undefined) throw keys.missing(SHAPE);
  const found = { dtype, shape: nd ? shape ?? [] : [], data };
  checkSize(found);
  return found;
}

function readDtype(reader: MsgpackReader): string {
  const dtype = reader.text();
  if (!DTYPES.test(dtype)) throw new MsgpackError("type", `unsupported dtype '${dtype.slice(0, 20)}'`);
  return dtype;
}

function readKind(reader: MsgpackReader): void {
  reader.binSpan();
  if (reader.spanLength > 0) throw new MsgpackError("type", "only plain numpy arrays are read (kind must be empty)");
}

function readShape(reader: MsgpackReader): number[] {
  const count = reader.arrayHeader();
  if (count > MAX_DIMENSIONS) {
    throw new MsgpackError("range", `a numpy array of ${count} dimensions, at most ${MAX_DIMENSIONS}`);
  }
  const shape: number[] = [];
  for (let i = 0; i < count; i++) shape.push(reader.unsigned(Number.MAX_SAFE_INTEGER));
  return shape;
}

function checkSize(array: NumpyArray): void {
  const size = Number(array.dtype.slice(2));
  const expected = array.shape.reduce((product, n) => product * n, size);
  if (array.data.length !== expected) {
    throw new MsgpackError("range", `numpy data of ${array.data.length} bytes, its shape needs ${expected}`);
  }
}

/** The elements as numbers; 64-bit integers beyond 53 bits lose precision. */
export function numpyValues(array: NumpyArray): Float64Array<ArrayBuffer> {
  const { dtype, data } = array;
  const size = Number(dtype.slice(2));
  const little = !dtype.startsWith(">");
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const values = new Float64Array(data.length / size);
  for (let i = 0; i < values.length; i++) values[i] = element(view, i * size, dtype.slice(1), little);
  return values;
}

function element(view: DataView, at: number, type: string, little: boolean): number {
  switch (type) {
    case "f2":
      return halfToNumber(view.getUint16(at, little));
    case "f4":
      return view.getFloat32(at, little);
    case "f8":
      return view.getFloat64(at, little);
    case "i1":
      return view.getInt8(at);
    case "i2":
      return view.getInt16(at, little);
    case "u2":
      return view.getUint16(at, little);
    case "i4":
      return view.getInt32(at, little);
    case "u4":
      return view.getUint32(at, little);
    case "i8":
      return Number(view.getBigInt64(at, little));
    case "u8":
      return Number(view.getBigUint64(at, little));
    default:
      return view.getUint8(at);
  }
}
