/**
 * The probes of the orchestrator (health-telemetry.md 1): `/healthz` and `/readyz`, exact texts, nothing else. It answers
 * until the end of the drain, so that readers see `draining` and not a refused connection.
 */
import { bodyOf, type HttpListener, listenHttp, type ServerLog } from "./http_listener.ts";
import { type ReadinessState, readinessText } from "./readiness.ts";

/** What the probe server needs. */
export interface ProbeServerOptions {
  /** All addresses in production. */
  readonly hostname?: string;
  readonly port: number;
  readonly readiness: () => ReadinessState;
  readonly log: ServerLog;
}

/** Starts the probe server. @returns undefined, after an error was logged, when the port cannot be had. */
export function startProbeServer(options: ProbeServerOptions): HttpListener | undefined {
  return listenHttp({
    name: "probe server",
    hostname: options.hostname ?? "0.0.0.0",
    port: options.port,
    log: options.log,
    handle: (method, path) => probeAnswer(method, path, options.readiness),
  });
}

/** The answer to one request. */
export function probeAnswer(method: string, path: string, readiness: () => ReadinessState): Response {
  if (method === "GET" && path === "/healthz") return bodyOf(200, "ok");
  if (method === "GET" && path === "/readyz") {
    const state = readiness();
    return state.ready ? bodyOf(200, "ok") : bodyOf(503, readinessText(state), "text/plain; charset=utf-8");
  }
  return bodyOf(404, "not found");
}
