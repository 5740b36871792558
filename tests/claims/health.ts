/** Claims on `health/`: command lines and environments, probes, readiness, saturation, residency, heartbeats. */
import type { VectorClaim } from "../harness/vectors.ts";
import { heartbeatClaim, loadingModelsClaim, readinessClaim, saturationClaim } from "./health/heartbeat.ts";
import { probeHttpClaim } from "./health/probe_http.ts";
import { runtimeConfigClaim } from "./health/runtime_config.ts";

/** See the module's comment. */
export const healthClaims: VectorClaim[] = [
  heartbeatClaim,
  loadingModelsClaim,
  probeHttpClaim,
  readinessClaim,
  runtimeConfigClaim,
  saturationClaim,
];
