/**
 * The sidecar as users start it. `SIDECAR_CMD` replaces the command, so that the same tests run the sources and the compiled
 * binary: white space separates its words, and the test's arguments follow.
 */
import assert from "node:assert/strict";
import { permissionSet } from "../../scripts/lib/compile/compiler.ts";
import { type Grant, GrantError, strictGrants } from "../../scripts/lib/compile/grants.ts";
import { fromFileUrl } from "./paths.ts";
import { freePort, ManagedProcess, PATIENCE_MS } from "./process.ts";

/** A path that nobody has: a list of permissions must not be empty, and "nothing" cannot be said otherwise. */
const NOWHERE = "/nonexistent";

const NOWHERE_HOST = "nonexistent.invalid:1";

const ROOT = fromFileUrl(new URL("../../", import.meta.url)).replace(/\/$/, "");

/** How to start the sidecar. */
export interface SidecarOptions {
  /** Environment: the settings. A free probe port and a quiet log level are added when they are not given. */
  readonly env: Readonly<Record<string, string>>;
  /** Arguments after the command, e.g. `["serve", "--ingest", "local"]`. */
  readonly args?: readonly string[];
  /** More folders it may read. */
  readonly read?: readonly string[];
}

/** A running sidecar. Use it with `await using`. */
export class Sidecar implements AsyncDisposable {
  readonly process: ManagedProcess;
  readonly probePort: number;

  private constructor(process: ManagedProcess, probePort: number) {
    this.process = process;
    this.probePort = probePort;
  }

  /** Starts a sidecar; does not wait. */
  static launch(options: SidecarOptions): Sidecar {
    const probePort = Number(options.env["SIE_WORKER_PROBE_PORT"] ?? freePort());
    const env = { SIE_WORKER_PROBE_PORT: String(probePort), SIE_DEBUG_ADDR: `127.0.0.1:${freePort()}`, ...options.env };
    const process = ManagedProcess.start({
      name: "worker-sidecar",
      command: [...sidecarCommand({ ...options, env }), ...(options.args ?? [])],
      env,
    });
    return new Sidecar(process, probePort);
  }

  /** Starts a sidecar and waits until it is ready for work. */
  static async start(options: SidecarOptions): Promise<Sidecar> {
    const sidecar = Sidecar.launch(options);
    try {
      await sidecar.untilReady();
      return sidecar;
    } catch (thrown) {
      await sidecar[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  /** Status of a probe, or undefined when nobody answers. */
  async probe(path: "/healthz" | "/readyz"): Promise<number | undefined> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.probePort}${path}`);
      await response.body?.cancel();
      return response.status;
    } catch {
      return undefined;
    }
  }

  /** Waits for 200 at `/healthz`. */
  async untilHealthy(limitMs = PATIENCE_MS): Promise<void> {
    await this.process.until("/healthz answers 200", async () => await this.probe("/healthz") === 200, limitMs);
  }

  /** Waits for 200 at `/readyz`. */
  async untilReady(limitMs = PATIENCE_MS): Promise<void> {
    await this.process.until("/readyz answers 200", async () => await this.probe("/readyz") === 200, limitMs);
  }

  /** Ends it as Kubernetes does and requires a clean exit. */
  async stop(signal: "SIGTERM" | "SIGINT" = "SIGTERM"): Promise<void> {
    const status = await this.process.stop(signal);
    assert.equal(status.code, 0, `worker-sidecar ended with ${status.code} after ${signal}:\n${this.process.output()}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process[Symbol.asyncDispose]();
  }
}

/**
 * Program and arguments in front of the test's own. Run from source, the sidecar gets exactly the permissions that
 * `deno task compile` would bake for these settings, and read access to the sources for its workers.
 */
export function sidecarCommand(options: Pick<SidecarOptions, "env" | "args" | "read">): string[] {
  const replaced = Deno.env.get("SIDECAR_CMD")?.split(/\s+/).filter((word) => word !== "");
  if (replaced !== undefined && replaced.length > 0) return replaced;
  const set = permissionSet(grantsFor(options), { unixPermissions: knowsUnixPermissions() });
  const flag = (kind: "net" | "read" | "write", more: readonly string[] = []) => {
    const values = set[kind];
    return values === true ? `--allow-${kind}` : `--allow-${kind}=${[...values ?? [], ...more].join(",")}`;
  };
  return [
    Deno.execPath(),
    "run",
    "--quiet",
    "--no-prompt",
    // For the environment and the umask: the command line of 2.9 does not take `--allow-sys=umask`, which a set does.
    "--permission-set=serve",
    `--config=${ROOT}/deno.json`,
    flag("net", [NOWHERE_HOST]),
    flag("read", [ROOT, ...options.read ?? []]),
    flag("write", [NOWHERE]),
    `${ROOT}/main.ts`,
  ];
}

function grantsFor({ env, args = [] }: Pick<SidecarOptions, "env" | "args">): Grant[] {
  const at = args.indexOf("--ingest");
  const ingest = (at === -1 ? env["SIE_SIDECAR_INGEST"] : args[at + 1]) === "local" ? "local" : "nats";
  try {
    return strictGrants(ingest, { variables: env });
  } catch (thrown) {
    // Settings that are refused get no permission at all: the sidecar must say so without any.
    if (thrown instanceof GrantError) return [];
    throw thrown;
  }
}

/** Deno 2.9 checks Unix sockets by path; 2.6, the other version that is tested, does not take the form. */
function knowsUnixPermissions(): boolean {
  const [major = 0, minor = 0] = Deno.version.deno.split(".").map(Number);
  return major > 2 || (major === 2 && minor >= 9);
}
