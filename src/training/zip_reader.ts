/** Reads the entries of a ZIP file that stores them uncompressed, as PyTorch does. */
import { TrainingError } from "./errors.ts";

const END_SIGNATURE = 0x06054b50, CENTRAL_SIGNATURE = 0x02014b50, LOCAL_SIGNATURE = 0x04034b50;
const END_BYTES = 22, CENTRAL_BYTES = 46, LOCAL_BYTES = 30;
const MAX_COMMENT_BYTES = 65_535;
/** A state dict of this network has about ten entries. */
const MAX_ENTRIES = 256;

/** Whether the bytes begin like a ZIP file. */
export function looksLikeZip(file: Uint8Array): boolean {
  return file[0] === 0x50 && file[1] === 0x4b && file[2] === 0x03 && file[3] === 0x04;
}

/**
 * All entries by name, as views of `file`; checksums are verified.
 *
 * @throws TrainingError `invalid_seed` on compression, encryption, ZIP64, overlapping bounds or a wrong checksum.
 */
export function readStoredZip(file: Uint8Array): Map<string, Uint8Array> {
  const view = new DataView(file.buffer, file.byteOffset, file.length);
  const end = findEnd(view);
  const count = view.getUint16(end + 10, true);
  let at = view.getUint32(end + 16, true);
  if (count > MAX_ENTRIES) throw invalid(`the archive has ${count} entries, the limit is ${MAX_ENTRIES}`);
  const entries = new Map<string, Uint8Array>();
  let stored = 0;
  for (let i = 0; i < count; i++) {
    if (at + CENTRAL_BYTES > end || view.getUint32(at, true) !== CENTRAL_SIGNATURE) {
      throw invalid("the archive's directory is damaged");
    }
    const nameLength = view.getUint16(at + 28, true);
    const next = at + CENTRAL_BYTES + nameLength + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    if (next > end) throw invalid("the archive's directory is damaged");
    const name = new TextDecoder().decode(file.subarray(at + CENTRAL_BYTES, at + CENTRAL_BYTES + nameLength));
    stored += view.getUint32(at + 24, true);
    // Entries that share their bytes would have them summed up once each.
    if (stored > file.length) throw invalid("the archive's entries overlap");
    entries.set(name, readEntry(file, view, at, name));
    at = next;
  }
  return entries;
}

function findEnd(view: DataView): number {
  const last = view.byteLength - END_BYTES;
  for (let at = last; at >= 0 && at >= last - MAX_COMMENT_BYTES; at--) {
    if (view.getUint32(at, true) === END_SIGNATURE) return at;
  }
  throw invalid("the archive has no directory");
}

function readEntry(file: Uint8Array, view: DataView, central: number, name: string): Uint8Array {
  const flags = view.getUint16(central + 8, true), method = view.getUint16(central + 10, true);
  const checksum = view.getUint32(central + 16, true), size = view.getUint32(central + 24, true);
  const local = view.getUint32(central + 42, true);
  if ((flags & 1) !== 0) throw invalid(`entry "${name}" is encrypted`);
  if (method !== 0) throw invalid(`entry "${name}" is compressed (method ${method})`);
  if (size === 0xffffffff || local === 0xffffffff) throw invalid(`entry "${name}" needs ZIP64`);
  if (local + LOCAL_BYTES > file.length || view.getUint32(local, true) !== LOCAL_SIGNATURE) {
    throw invalid(`entry "${name}" has no header`);
  }
  const start = local + LOCAL_BYTES + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  if (start + size > file.length) throw invalid(`entry "${name}" ends outside the file`);
  const data = file.subarray(start, start + size);
  if (crc32(data) !== checksum) throw invalid(`entry "${name}" has a wrong checksum`);
  return data;
}

let crcTable: Uint32Array | undefined;

function crc32(data: Uint8Array): number {
  const table = crcTable ??= Uint32Array.from({ length: 256 }, (_, byte) => {
    let value = byte;
    for (let bit = 0; bit < 8; bit++) value = (value & 1) !== 0 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    return value;
  });
  let crc = 0xffffffff;
  for (let i = 0; i < data.length; i++) crc = (crc >>> 8) ^ (table[(crc ^ (data[i] as number)) & 0xff] as number);
  return (crc ^ 0xffffffff) >>> 0;
}

function invalid(reason: string): TrainingError {
  return new TrainingError("invalid_seed", reason);
}
