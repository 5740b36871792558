/** Claims on the vectors of the online trainer's tables and rules. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import type { VectorClaim } from "../harness/vectors.ts";
import { splitBatch } from "../../src/training/batch_split.ts";
import { digestFileText, parseDigestFile } from "../../src/training/digest_file.ts";
import { gateVerdict, pearson } from "../../src/training/gate.ts";
import { RollbackWindow } from "../../src/training/rollback_window.ts";
import { mapStatus } from "../../src/training/status_mapper.ts";

const batchSplitClaim: VectorClaim = {
  files: ["training/batch_split.json"],
  *cases(data) {
    const file = data as {
      rows: [number, number, number, number][];
      invalid: { batch_size: number; replay_mix: number; pending_capacity?: number; error: string }[];
    };
    for (const [batch, mix, replayRows, newRows] of file.rows) {
      yield {
        name: `${batch} rows, ${mix} replayed`,
        check: () => assert.deepEqual(splitBatch(batch, mix), { replayRows, newRows }),
      };
    }
    for (const { batch_size: batch, replay_mix: mix, pending_capacity: capacity, error } of file.invalid) {
      yield {
        name: error,
        check: () => assert.throws(() => splitBatch(batch, mix, capacity), { name: "TrainingError", message: error }),
      };
    }
  },
};

const digestClaim: VectorClaim = {
  files: ["training/sha256_file.json"],
  *cases(data) {
    const file = data as {
      write: { content_b64: string; sha256_file_text: string }[];
      read_accept: string[];
      read_reject: string[];
    };
    for (const { content_b64: content, sha256_file_text: text } of file.write) {
      yield {
        name: `digest of ${Buffer.from(content, "base64").length} bytes`,
        check() {
          const hex = createHash("sha256").update(Buffer.from(content, "base64")).digest("hex");
          assert.equal(digestFileText(hex), text);
          assert.equal(parseDigestFile(text), hex);
        },
      };
    }
    const hex = createHash("sha256").update("any").digest("hex");
    const filled = (pattern: string) =>
      pattern.replaceAll("<63 hex>", hex.slice(1)).replaceAll("<65 hex>", `${hex}0`)
        .replaceAll("<hex with one g>", `g${hex.slice(1)}`).replaceAll("<HEX upper case>", hex.toUpperCase())
        .replaceAll("<hex>", hex);
    for (const pattern of file.read_accept) {
      yield {
        name: `accepted: ${JSON.stringify(pattern)}`,
        check: () => assert.equal(parseDigestFile(filled(pattern)), hex),
      };
    }
    for (const pattern of file.read_reject) {
      yield {
        name: `refused: ${JSON.stringify(pattern)}`,
        check: () => assert.equal(parseDigestFile(filled(pattern)), undefined),
      };
    }
  },
};

const statusClaim: VectorClaim = {
  files: ["training/status_mapper.json"],
  *cases(data) {
    const file = data as {
      cases: {
        body: unknown;
        phase?: string;
        currentSamples?: number;
        lastCheckpoint?: string;
        modelVersion?: string;
        error?: string;
      }[];
    };
    for (const { body, phase, currentSamples, lastCheckpoint, modelVersion, error } of file.cases) {
      yield {
        name: JSON.stringify(body),
        check() {
          const mapped = mapStatus(body);
          if (error !== undefined) return assert.equal(mapped.kind, "undecodable");
          const status = {
            phase,
            currentSamples,
            ...(lastCheckpoint === undefined ? {} : { lastCheckpoint }),
            ...(modelVersion === undefined ? {} : { modelVersion }),
          };
          assert.deepEqual(mapped, { kind: "mapped", status });
        },
      };
    }
  },
};

const gateClaim: VectorClaim = {
  files: ["training/plcc_gate.json"],
  *cases(data) {
    const file = data as {
      truth: number[];
      predictions: Record<string, number[]>;
      plcc: Record<string, number | null>;
      cases: { previous: string | null; candidate: string; delta: number | null; result: string }[];
      edges: { plcc_previous: number; plcc_candidate: number; stability_plcc_delta: number; result: string }[];
    };
    // The one set that the file cannot hold: JSON has no NaN.
    const predictions = { ...file.predictions, with_nan: file.truth.map((value, i) => i === 3 ? NaN : value) };
    const plcc = (name: string) => pearson(predictions[name as keyof typeof predictions] ?? [], file.truth);
    for (const [name, expected] of Object.entries(file.plcc)) {
      yield {
        name: `PLCC of ${name}`,
        check() {
          if (expected === null) assert.equal(plcc(name), undefined);
          else assert.ok(Math.abs((plcc(name) ?? NaN) - expected) <= 1e-12, name);
        },
      };
    }
    for (const { previous, candidate, result } of file.cases) {
      yield {
        name: `${previous} then ${candidate}`,
        check: () =>
          assert.equal(gateVerdict(previous === null ? undefined : plcc(previous), plcc(candidate), 0.005), result),
      };
    }
    for (const edge of file.edges) {
      yield {
        name: `${edge.plcc_previous} then ${edge.plcc_candidate}, limit ${edge.stability_plcc_delta}`,
        check: () =>
          assert.equal(gateVerdict(edge.plcc_previous, edge.plcc_candidate, edge.stability_plcc_delta), edge.result),
      };
    }
  },
};

const rollbackClaim: VectorClaim = {
  files: ["training/rollback.json"],
  *cases(data) {
    const file = data as {
      window_s: number;
      rollback_threshold: number;
      min_count: number;
      cases: {
        title: string;
        events: [number, boolean][];
        rollback: { at: number; total: number; failures: number; rate: number } | null;
      }[];
    };
    for (const { title, events, rollback } of file.cases) {
      yield {
        name: title,
        check() {
          const window = new RollbackWindow({
            windowMs: file.window_s * 1000,
            threshold: file.rollback_threshold,
            minCount: file.min_count,
          });
          let fired = null;
          for (const [at, succeeded] of events) {
            const rate = window.record(at * 1000, succeeded);
            if (rate !== undefined && fired === null) fired = { at, ...rate };
          }
          assert.deepEqual(fired, rollback);
        },
      };
    }
  },
};

/** See the head of this file. */
export const trainingRuleClaims: VectorClaim[] = [batchSplitClaim, digestClaim, statusClaim, gateClaim, rollbackClaim];
