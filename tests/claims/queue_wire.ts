/** Claims on the messages of the queue, collected from their topics. */
import type { VectorClaim } from "../harness/vectors.ts";
import { generateChunkClaims } from "./generate_chunks.ts";
import { resultChunkClaims } from "./result_chunks.ts";
import { resultPayloadClaims } from "./result_payloads.ts";
import { workItemClaims } from "./work_items.ts";
import { resultFieldsClaim } from "./work_results.ts";

/** Every message of the queue whose bytes the vectors give. */
export const queueWireClaims: VectorClaim[] = [
  ...workItemClaims,
  resultFieldsClaim("queue/work_result.json"),
  ...resultPayloadClaims,
  ...resultChunkClaims,
  ...generateChunkClaims,
];
