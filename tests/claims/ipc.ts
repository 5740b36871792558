/** Claims on the vectors of the backend's wire protocol. */
import type { VectorClaim } from "../harness/vectors.ts";
import { ipcAnswerClaims } from "./ipc_answers.ts";
import { ipcChunkClaims } from "./ipc_chunks.ts";
import { ipcGenerationClaims } from "./ipc_generation.ts";
import { ipcRequestClaims } from "./ipc_requests.ts";

export const ipcClaims: VectorClaim[] = [
  ...ipcAnswerClaims,
  ...ipcChunkClaims,
  ...ipcGenerationClaims,
  ...ipcRequestClaims,
];
