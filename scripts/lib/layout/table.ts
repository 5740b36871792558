/**
 * The house rules as data: who may know whom, and which exceptions there are. `docs/architecture.md` explains them.
 */

/** The backend as an interface: what it can be asked and how that fails. No socket is in sight. */
const BACKEND = ["ipc/backend.ts", "ipc/errors.ts"] as const;

/**
 * What each folder of `src/` may import from other folders of `src/`; its own files always. An entry is a folder or one file.
 * Files directly in `src/`, and those of {@link WIRING}, wire everything together and may import anything; only `main.ts` may
 * import them.
 */
export const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  runtime: [],
  wire: ["runtime/errors.ts", "runtime/digest.ts"],
  settings: ["runtime"],
  telemetry: ["runtime", "settings"],
  scheduler: ["runtime", "wire"],
  payload: ["runtime", "settings", "telemetry"],
  prepare: ["runtime", "wire", "payload", "telemetry"],
  publish: ["runtime", "wire", "prepare/caller_item_id.ts", "telemetry"],
  ipc: ["runtime", "wire", "telemetry"],
  dispatch: ["runtime", "wire", "scheduler", "prepare", "publish", "payload", "telemetry", "settings", ...BACKEND],
  generate: ["runtime", "wire", "prepare", "dispatch", "publish", "telemetry", ...BACKEND],
  live_config: ["runtime", "wire", "dispatch", "telemetry", "settings", ...BACKEND],
  health: ["runtime", "wire", "telemetry", "settings", ...BACKEND],
  consumer: ["runtime", "wire", "dispatch", "publish", "generate", "telemetry", "settings"],
  local_ingest: ["runtime", "wire", "dispatch", "publish", "generate", "telemetry", "settings"],
  training: ["runtime", "wire", "settings", "telemetry"],
  // For other programs: it must not pull in the server.
  client: ["runtime", "wire"],
  // The rules of the other end, for test gateways, the demonstration and tools.
  gateway: ["runtime", "wire"],
};

/** Folders of `src/` that the program itself must not contain: only what lies outside `src/`, without `main.ts`, may import them. */
export const NOT_IN_THE_PROGRAM: readonly string[] = ["gateway"];

/** The folder for the parts of `src/serve.ts`. */
export const WIRING = "serve";

/** Folders of `src/` where an import must not occur, by the start of its specifier. */
export const FOREIGN_IMPORTS: readonly {
  readonly prefix: string;
  readonly onlyIn: readonly string[];
  readonly why: string;
}[] = [
  { prefix: "@nats-io/", onlyIn: ["consumer"], why: "only the consumer knows NATS" },
  {
    prefix: "node:net",
    onlyIn: ["consumer", "ipc", "local_ingest", "client", "training", "health"],
    why: "only the edges know sockets",
  },
  { prefix: "npm:", onlyIn: [], why: "packages are imported by the bare names of deno.json" },
  { prefix: "jsr:", onlyIn: [], why: "packages are imported by the bare names of deno.json" },
  { prefix: "http", onlyIn: [], why: "packages are imported by the bare names of deno.json" },
];

/** Code that reads time, sets timers or makes randomness; in `src/` only where the outside world is wrapped. */
export const AMBIENT: readonly { readonly pattern: RegExp; readonly name: string }[] = [
  { pattern: /\bDate\.now\b/g, name: "Date.now" },
  { pattern: /\bnew Date\(\s*\)/g, name: "new Date()" },
  { pattern: /\bperformance\.now\b/g, name: "performance.now" },
  { pattern: /\b(?:setTimeout|setInterval)\b/g, name: "a timer" },
  { pattern: /\bAbortSignal\.timeout\b/g, name: "AbortSignal.timeout" },
  { pattern: /\bMath\.random\b/g, name: "Math.random" },
  { pattern: /\bcrypto\.(?:randomUUID|getRandomValues)\b/g, name: "randomness" },
];

/** Lines of a file at which it should be split along its ideas, and those at which it must be. */
export const LENGTH = { advised: 400, most: 520 } as const;

/** Which rule a finding belongs to. */
export type RuleName =
  | "cycle"
  | "direction"
  | "foreign"
  | "ambient"
  | "length"
  | "default-export"
  | "barrel"
  | "unresolved";

/** A place where a rule does not hold, with the reason. One that is no longer needed is reported. */
export interface Exception {
  readonly rule: RuleName;
  readonly path: string;
  readonly reason: string;
}

/** All exceptions. */
export const EXCEPTIONS: readonly Exception[] = [
  { rule: "ambient", path: "src/runtime/clock.ts", reason: "the one place that wraps time and timers" },
  { rule: "ambient", path: "src/client/client.ts", reason: "request ids of callers who make none of their own" },
];
