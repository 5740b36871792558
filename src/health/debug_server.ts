/**
 * Looking inside: JSON under `/debug/…` on `SIE_DEBUG_ADDR`, the loopback interface by default, apart from the probe port
 * that everybody can reach. What is shown is provided by the parts that know it.
 */
import { errorText } from "../runtime/errors.ts";
import { bodyOf, type HttpListener, listenHttp, type ServerLog } from "./http_listener.ts";

/** Paths of the debug endpoints. */
export type DebugPath = "/debug/batches" | "/debug/batch-fixtures" | "/debug/limits" | "/debug/ready";

/** Gives the current content of one endpoint: a value that JSON can hold, without secrets and payloads. */
export type DebugProvider = () => unknown;

/** The endpoints of a process. Parts register themselves as they start. */
export class DebugEndpoints {
  readonly #providers = new Map<string, DebugProvider>();

  /** Registers the content of `path`; a later provider replaces an earlier one. */
  provide(path: DebugPath, provider: DebugProvider): void {
    this.#providers.set(path, provider);
  }

  /** The answer to one request. */
  answer(method: string, path: string): Response {
    if (method !== "GET") return json(405, { error: "only GET is answered" });
    const provider = this.#providers.get(path);
    if (provider === undefined) return json(404, { error: "not found", endpoints: [...this.#providers.keys()].sort() });
    try {
      return json(200, provider());
    } catch (thrown) {
      return json(500, { error: errorText(thrown) });
    }
  }
}

/** Starts the debug server. @returns undefined, after an error was logged, when the address cannot be had. */
export function startDebugServer(
  endpoints: DebugEndpoints,
  address: { readonly hostname: string; readonly port: number },
  log: ServerLog,
): HttpListener | undefined {
  return listenHttp({
    name: "debug server",
    ...address,
    log,
    handle: (method, path) => endpoints.answer(method, path),
  });
}

function json(status: number, value: unknown): Response {
  const text = JSON.stringify(value, (_key, inner) => typeof inner === "bigint" ? Number(inner) : inner, 2) ?? "null";
  return bodyOf(status, text + "\n", "application/json");
}
