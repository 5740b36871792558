/** A small HTTP server that may fail to start without taking the process along. */
import { errorText } from "../runtime/errors.ts";

/** Where servers say how they fare. */
export interface ServerLog {
  info(message: string, fields: Record<string, unknown>): void;
  error(message: string, fields: Record<string, unknown>): void;
}

/** What to serve, and where. */
export interface HttpListenerOptions {
  /** For messages, e.g. `probe server`. */
  readonly name: string;
  readonly hostname: string;
  /** 0 lets the system choose. */
  readonly port: number;
  readonly handle: (method: string, path: string) => Response;
  readonly log: ServerLog;
}

/** A running server. */
export interface HttpListener {
  readonly port: number;
  /** Takes no more connections and resolves when those that are answered have ended. */
  stop(): Promise<void>;
}

/** Starts a server. @returns undefined, after an error was logged, when the address cannot be had. */
export function listenHttp(options: HttpListenerOptions): HttpListener | undefined {
  const { name, hostname, port, log } = options;
  try {
    const server = Deno.serve({
      hostname,
      port,
      onListen: (address) => log.info(`${name} listens`, { hostname: address.hostname, port: address.port }),
      onError: (thrown) => {
        log.error(`${name} could not answer`, { error: errorText(thrown) });
        return bodyOf(500, "internal error");
      },
    }, (request) => options.handle(request.method, rawPath(request.url)));
    return { port: server.addr.port, stop: () => server.shutdown() };
  } catch (thrown) {
    log.error(`${name} cannot listen; going on without it`, { hostname, port, error: errorText(thrown) });
    return undefined;
  }
}

/** A text answer. Without `contentType` there is none, as the peers expect of the short ones. */
export function bodyOf(status: number, text: string, contentType?: string): Response {
  const headers: Record<string, string> = contentType === undefined ? {} : { "content-type": contentType };
  return new Response(new TextEncoder().encode(text), { status, headers });
}

/** The path as it was sent, without its query: `/healthz/`, `//healthz` and `/%68ealthz` are other paths than `/healthz`. */
export function rawPath(url: string): string {
  const start = url.indexOf("/", url.indexOf("://") + 3);
  if (start < 0) return "/";
  const end = url.slice(start).search(/[?#]/);
  return end < 0 ? url.slice(start) : url.slice(start, start + end);
}
