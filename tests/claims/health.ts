/** Claims on `health/`: command lines and environments, probes, readiness, saturation, residency, heartbeats. */
import { runtimeConfigClaim } from "./health/runtime_config.ts";
import type { VectorClaim } from "../harness/vectors.ts";

/** See the module's comment. */
export const healthClaims: VectorClaim[] = [runtimeConfigClaim];
