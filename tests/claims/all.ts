/** Every claim on a vector file, collected from the topics. Keep the list sorted. */
import type { VectorClaim } from "../harness/vectors.ts";
import { backendClaims } from "./backend.ts";
import { backendFramedClaim } from "./backend_framed.ts";
import { gatewayClaims } from "./gateway.ts";
import { generationClaims } from "./generation.ts";
import { healthClaims } from "./health.ts";
import { ingestClaims } from "./ingest.ts";
import { ipcClaims } from "./ipc.ts";
import { localStreamClaims } from "./local_stream.ts";
import { numpyClaims } from "./numpy.ts";
import { prepOutputClaims } from "./prep_output.ts";
import { prepareClaims } from "./prepare.ts";
import { queueClaims } from "./queue.ts";
import { queueWireClaims } from "./queue_wire.ts";
import { schedulerClaims } from "./scheduler.ts";
import { trainingClaims } from "./training.ts";

/** All claims; a file that no claim names counts as "not claimed yet". */
export const allClaims: VectorClaim[] = [
  ...backendClaims,
  backendFramedClaim,
  ...gatewayClaims,
  ...generationClaims,
  ...healthClaims,
  ...ingestClaims,
  ...ipcClaims,
  ...localStreamClaims,
  ...numpyClaims,
  ...prepareClaims,
  ...prepOutputClaims,
  ...queueClaims,
  ...queueWireClaims,
  ...schedulerClaims,
  ...trainingClaims,
];
