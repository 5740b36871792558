/** Claims on the publications of a generation. */
import assert from "node:assert/strict";
import { readPublication, stampExecutedHash, terminalErrorChunk } from "../../src/wire/generate_chunk.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { transcode } from "../../src/wire/msgpack/transcode.ts";
import { MsgpackWriter } from "../../src/wire/msgpack/writer.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { inboxMessageKind } from "../../src/wire/work_result_reader.ts";
import { assertNotation } from "../harness/notation.ts";
import { fromHex, toHex } from "../harness/paths.ts";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { workItemBytes } from "../harness/work_items.ts";

interface GenerateChunkCase {
  readonly name: string;
  readonly hex: string;
  readonly decoded: {
    readonly kind: string;
    readonly request_id: string;
    readonly attempt_id: string;
    readonly seq?: number;
    readonly done?: boolean;
    readonly reason?: string;
    readonly error?: { readonly code: string; readonly message: string };
  } | null;
  readonly source?: string;
  readonly bundle_config_hash?: string;
}

const generateChunkClaim: VectorClaim = {
  files: ["queue/generate_chunk.json"],
  *cases(data) {
    const all = data as GenerateChunkCase[];
    for (const one of all) {
      const source = all.find(({ name }) => name === one.source);
      yield {
        name: one.name,
        check() {
          const { decoded, hex } = one;
          if (one.bundle_config_hash !== undefined) {
            assert.equal(toHex(stamped(fromHex(source?.hex ?? hex), one.bundle_config_hash)), hex);
          }
          if (decoded === null) return;
          const copy = new MsgpackWriter();
          transcode(new MsgpackReader(fromHex(hex)), copy);
          assertNotation(copy.take(), decoded);
          assert.deepEqual(readPublication(fromHex(hex)), {
            kind: decoded.kind,
            requestId: decoded.request_id,
            attemptId: decoded.attempt_id,
            seq: decoded.seq,
            done: decoded.done,
            reason: decoded.reason,
            repeated: undefined,
          });
          assert.equal(inboxMessageKind(fromHex(hex)), decoded.kind);
          if (decoded.error !== undefined) {
            const workItemId = decoded.attempt_id.replace(/:model-loading$/, "");
            assert.equal(toHex(refusalOf(workItemId, decoded.request_id, decoded.error)), hex);
          }
        },
      } satisfies VectorCase;
    }
  },
};

/** A publication as it goes out for an item with this hash. */
function stamped(payload: Uint8Array, hash: string): Uint8Array {
  return hash === "" ? payload : stampExecutedHash(payload, hash);
}

function refusalOf(workItemId: string, requestId: string, error: { code: string; message: string }): Uint8Array {
  return terminalErrorChunk(decodeWorkItem(workItemBytes({ work_item_id: workItemId, request_id: requestId })), error);
}

interface StampCase {
  readonly name: string;
  readonly input: { readonly payload_hex: string; readonly hash: string };
  readonly expected: { readonly hex?: string; readonly error?: string };
}

const hashStampClaim: VectorClaim = {
  files: ["generation/hash-stamp.json"],
  *cases(data) {
    for (const { name, input, expected } of data as StampCase[]) {
      yield {
        name,
        check() {
          const stamp = () => stamped(fromHex(input.payload_hex), input.hash);
          if (expected.error === undefined) assert.equal(toHex(stamp()), expected.hex);
          else assert.throws(stamp, { message: expected.error });
        },
      } satisfies VectorCase;
    }
  },
};

interface TerminalCase {
  readonly name: string;
  readonly input: {
    readonly work_item_id: string;
    readonly request_id: string;
    readonly code: string;
    readonly message: string;
  };
  readonly expected: string;
}

const terminalErrorsClaim: VectorClaim = {
  files: ["generation/terminal-error-chunks.json"],
  *cases(data) {
    for (const { name, input, expected } of data as TerminalCase[]) {
      const check = () => assert.equal(toHex(refusalOf(input.work_item_id, input.request_id, input)), expected);
      yield { name, check } satisfies VectorCase;
    }
  },
};

/** Publications as the sidecar stamps, makes and reads them. */
export const generateChunkClaims: VectorClaim[] = [generateChunkClaim, hashStampClaim, terminalErrorsClaim];
