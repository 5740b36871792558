/** Claim on the request lines of the feedback protocol. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { VectorCase, VectorClaim } from "../harness/vectors.ts";
import { formatAck } from "../../src/training/ack.ts";
import { FeedbackLineReader, isBlankLine } from "../../src/training/feedback_line.ts";

interface WireFile {
  readonly same_text_needed: readonly string[];
  readonly cases: readonly {
    readonly title: string;
    readonly line_b64: string;
    readonly ours: "accept" | "reject";
    readonly reference: { ok: boolean; error?: string; job_id?: unknown } | string;
  }[];
}

/** See the file's comment. */
export const wireClaim: VectorClaim = {
  files: ["training/wire_cases.json"],
  *cases(data): Generator<VectorCase> {
    const file = data as WireFile;
    const reader = new FeedbackLineReader(3);
    for (const { title, line_b64: encoded, ours, reference } of file.cases) {
      yield {
        name: title,
        check() {
          // In the middle of a larger buffer, as it is in a socket read.
          const line = Buffer.concat([Buffer.from("}\n"), Buffer.from(encoded, "base64"), Buffer.from("\n{")]);
          assert.equal(isBlankLine(line, 2, line.length - 2), false);
          const request = reader.read(line, 2, line.length - 2);
          assert.equal(request.kind, ours === "accept" ? "sample" : "rejected");
          if (request.kind === "sample") {
            const ack = JSON.parse(formatAck({ kind: "admitted", step: 0 }, request.jobId)) as Record<string, unknown>;
            assert.ok(typeof reference === "object");
            assert.deepEqual(ack, reference);
          } else if (file.same_text_needed.includes(title)) {
            assert.ok(typeof reference === "object");
            assert.equal(request.error, reference.error);
          }
        },
      };
    }
  },
};
