/**
 * The filter of `RUST_LOG` (health-telemetry.md 9): a bare level for everything, and `target=level` entries for parts, e.g.
 * `warn,sie_server_sidecar::ipc=debug`.
 */

/** Levels from the most to the least talkative; `off` says nothing at all. */
export type FilterLevel = "trace" | "debug" | "info" | "warning" | "error" | "off";

/** Level of one part of the program, by the path below the root; an empty path is the whole program. */
export interface FilterEntry {
  readonly path: readonly string[];
  readonly level: FilterLevel;
}

/** What a filter text means. Later entries for the same path win. */
export interface LogFilter {
  readonly entries: readonly FilterEntry[];
  /** Set when the text is no filter and `info` is used instead. */
  readonly invalid?: string;
}

/** Names under which targets may call this program. */
const ROOTS: ReadonlySet<string> = new Set([
  "sie_server_sidecar",
  "sie-server-sidecar",
  "worker_sidecar",
  "worker-sidecar",
]);

const LEVELS: ReadonlyMap<string, FilterLevel> = new Map([
  ["trace", "trace"],
  ["debug", "debug"],
  ["info", "info"],
  ["warn", "warning"],
  ["error", "error"],
  ["off", "off"],
]);

/** Reads a filter; unset, blank or invalid means `info`. */
export function parseLogFilter(text: string | undefined): LogFilter {
  const parts = (text ?? "").split(",").map((part) => part.trim()).filter((part) => part !== "");
  if (parts.length === 0) return { entries: [{ path: [], level: "info" }] };
  let whole: FilterLevel = "off";
  const entries: FilterEntry[] = [];
  for (const part of parts) {
    const [target = "", word, ...more] = part.split("=").map((side) => side.trim());
    const bare = word === undefined ? LEVELS.get(target.toLowerCase()) : undefined;
    if (bare !== undefined) {
      whole = bare;
      continue;
    }
    // A target without a level means everything it says.
    const level = word === undefined ? "trace" : LEVELS.get(word.toLowerCase());
    if (level === undefined || more.length > 0 || !/^[A-Za-z0-9_:-]+$/.test(target)) {
      return { entries: [{ path: [], level: "info" }], invalid: part };
    }
    const [root = "", ...path] = target.split("::");
    // Targets of other programs' libraries are valid and mean nothing here.
    if (ROOTS.has(root)) entries.push({ path, level });
  }
  return { entries: [{ path: [], level: whole }, ...entries] };
}
