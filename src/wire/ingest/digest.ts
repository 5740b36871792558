/** The payload digest (spec/local-ingest.md 5): detects drift between peers that trust each other; it proves nothing. */
import { Sha256 } from "../../runtime/digest.ts";
import type { IngestBody } from "./request.ts";

/** What the digest covers. `id`, `op`, the trace fields and the digest itself are outside. */
export type DigestedBody = Omit<IngestBody, "payloadDigest" | "traceparent" | "tracestate">;

const utf8 = new TextEncoder();
const DOMAIN = utf8.encode("sie-local-ingest-v1\0");

/** The digested bytes, in pieces: the domain, each field behind its length, the timeout. */
export function* digestPieces(body: DigestedBody): Generator<Uint8Array, void, undefined> {
  yield DOMAIN;
  const { dispatchContext, lane, endpoint, model, engine, admissionPool, bundleConfigHash, requestId } = body;
  const texts = [lane, endpoint, model, engine, admissionPool, bundleConfigHash, requestId];
  for (const field of [dispatchContext, ...texts.map((text) => utf8.encode(text)), body.params, body.items]) {
    yield eightBytes((view) => view.setBigUint64(0, BigInt(field.length)));
    yield field;
  }
  yield eightBytes((view) => view.setBigInt64(0, body.timeoutMs));
}

/** The digest that a body must carry: 32 bytes. */
export function payloadDigest(body: DigestedBody): Uint8Array {
  const hash = new Sha256();
  for (const piece of digestPieces(body)) hash.update(piece);
  return hash.digest();
}

/** Eight bytes, big-endian. */
function eightBytes(set: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(8);
  set(new DataView(bytes.buffer));
  return bytes;
}
