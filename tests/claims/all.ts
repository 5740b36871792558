/** Every claim on a vector file, collected from the topics. Keep the list sorted. */
import type { VectorClaim } from "../harness/vectors.ts";
import { generationClaims } from "./generation.ts";
import { backendClaims } from "./backend.ts";
import { healthClaims } from "./health.ts";
import { ipcClaims } from "./ipc.ts";
import { prepareClaims } from "./prepare.ts";
import { prepOutputClaims } from "./prep_output.ts";
import { queueClaims } from "./queue.ts";
import { queueWireClaims } from "./queue_wire.ts";
import { schedulerClaims } from "./scheduler.ts";
import { trainingClaims } from "./training.ts";

/** All claims; a file that no claim names counts as "not claimed yet". */
export const allClaims: VectorClaim[] = [
  ...generationClaims,
  ...backendClaims,
  ...healthClaims,
  ...ipcClaims,
  ...prepareClaims,
  ...prepOutputClaims,
  ...queueClaims,
  ...queueWireClaims,
  ...schedulerClaims,
  ...trainingClaims,
];
