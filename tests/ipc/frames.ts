/** Answers for scripted backends, written by code that is independent of `src/wire/ipc`. */
import { encodeNotation } from "../harness/notation.ts";
import { toHex } from "../harness/paths.ts";

/** One frame around MessagePack. */
export function framed(body: Uint8Array): Uint8Array {
  const frame = new Uint8Array(4 + body.length);
  new DataView(frame.buffer).setUint32(0, body.length);
  frame.set(body, 4);
  return frame;
}

/** An ordinary answer with a body in the notation of the vectors. */
export function okAnswer(requestId: string, body: unknown): Uint8Array {
  return framed(encodeNotation({ version: 1, request_id: requestId, ok: true, body, error: null }));
}

/** An answer that refuses. */
export function errorAnswer(requestId: string, error: string): Uint8Array {
  return framed(encodeNotation({ version: 1, request_id: requestId, ok: false, body: null, error }));
}

/** A Ping answer. */
export function pingAnswer(requestId: string, fields: Record<string, unknown> = {}): Uint8Array {
  return okAnswer(requestId, { timestamp_ms: { $f64: 1 }, worker_id: "scripted", ready: true, ...fields });
}

/** Splits a stream of frames. */
export function splitFrames(bytes: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = new DataView(bytes.buffer, bytes.byteOffset + at, 4).getUint32(0);
    frames.push(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return frames;
}

/** Chunks of a large answer, framed, as the backend cuts them. */
export async function chunked(requestId: string, whole: Uint8Array, payloadBytes: number): Promise<Uint8Array[]> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", whole as Uint8Array<ArrayBuffer>));
  const count = Math.ceil(whole.length / payloadBytes);
  return Array.from({ length: count }, (_, index) => {
    const payload = whole.subarray(index * payloadBytes, (index + 1) * payloadBytes);
    return chunkFrame(requestId, digest, index, count, whole.length, payload);
  });
}

/** One chunk, framed. Written by hand: the payload may be large. */
export function chunkFrame(
  requestId: string,
  digest: Uint8Array,
  index: number,
  count: number,
  total: number,
  payload: Uint8Array,
): Uint8Array {
  const head = encodeNotation({
    version: 1,
    request_id: requestId,
    transfer_digest: { $bin: toHex(digest) },
    chunk_index: index,
    chunk_count: count,
    total_bytes: total,
    kind: "ipc_response_chunk_v1",
    payload: 0,
  });
  // The 0 at the end makes room for the payload's own header.
  const header = new Uint8Array(5);
  header[0] = 0xc6;
  new DataView(header.buffer).setUint32(1, payload.length);
  const frame = new Uint8Array(4 + head.length - 1 + header.length + payload.length);
  new DataView(frame.buffer).setUint32(0, frame.length - 4);
  frame.set(head.subarray(0, -1), 4);
  frame.set(header, 4 + head.length - 1);
  frame.set(payload, 4 + head.length - 1 + header.length);
  return frame;
}
