/**
 * Logging: `@logtape/logtape` with one root category, the level filter of `RUST_LOG`, and one line a record
 * (health-telemetry.md 9). Modules get their logger from {@link logFor} and never see where the lines go.
 */
import { configureSync, getLogger, type Logger, type LogLevel, type LogRecord, resetSync } from "@logtape/logtape";
import { sleep, systemClock } from "./clock.ts";
import { parseLogFilter } from "./log_filter.ts";
import { jsonLine, type LogEntry, shortened, textLine } from "./log_format.ts";
import { LineWriter } from "./line_writer.ts";

/** First element of every category. */
export const rootCategory = "worker-sidecar";

/** Longest wait for the last lines at the end of the process, in milliseconds. */
export const FLUSH_LIMIT_MS = 2000;

/** How to log. */
export interface LoggingOptions {
  /** Text of `RUST_LOG`. */
  readonly filter: string | undefined;
  readonly format: "json" | "text";
  /** Takes finished lines. */
  readonly write: (line: string) => void;
}

/** Logger of one part of the program, e.g. `logFor("ipc")`. */
export function logFor(part: string): Logger {
  return getLogger([rootCategory, part]);
}

/** Sets logging up for the whole process; a second call replaces the first. An unusable filter is said once, at `warn`. */
export function configureLogging(options: LoggingOptions): void {
  const filter = parseLogFilter(options.filter);
  const toLine = options.format === "json" ? jsonLine : textLine;
  const out = (record: LogRecord) => options.write(toLine(entryOf(record)));
  const byPath = new Map(filter.entries.map((entry) => [entry.path.join("::"), entry]));
  configureSync<"out", string>({
    reset: true,
    sinks: { out },
    loggers: [
      ...[...byPath.values()].map((entry) => ({
        category: [rootCategory, ...entry.path],
        sinks: ["out" as const],
        parentSinks: "override" as const,
        lowestLevel: entry.level === "off" ? null : entry.level,
      })),
      { category: ["logtape", "meta"], sinks: ["out"], lowestLevel: "error" },
    ],
  });
  if (filter.invalid !== undefined) {
    logFor("log").warn("RUST_LOG is not a filter; using info", { entry: filter.invalid });
  }
}

/** Takes logging down again; for tests and the end of the process. */
export function resetLogging(): void {
  resetSync();
}

/**
 * A writer for the running process: JSON on stdout, text on stderr. `auto` is text when stderr is a terminal.
 *
 * @returns the options for {@link configureLogging} and a function that waits until all lines are out, or for
 *   {@link FLUSH_LIMIT_MS}: a reader that stalls must not keep the process from ending.
 */
export function processLogging(
  filter: string | undefined,
  format: "auto" | "json" | "text",
  isTerminal: boolean = Deno.stderr.isTerminal(),
): { readonly options: LoggingOptions; flush(): Promise<void> } {
  const chosen = format === "auto" ? (isTerminal ? "text" : "json") : format;
  const toLine = chosen === "json" ? jsonLine : textLine;
  const writer = new LineWriter({
    sink: chosen === "json" ? Deno.stdout : Deno.stderr,
    gapLine: (dropped) =>
      toLine({
        unixMs: systemClock.unixMs(),
        level: "WARN",
        path: ["log"],
        message: "lines were dropped",
        fields: { dropped },
      }),
  });
  return {
    options: { filter, format: chosen, write: (line) => writer.write(line) },
    flush: () => withinLimit(writer.flush()),
  };
}

async function withinLimit(flushed: Promise<void>): Promise<void> {
  const given = new AbortController();
  await Promise.race([flushed, sleep(systemClock, FLUSH_LIMIT_MS, given.signal)]);
  given.abort();
}

function entryOf(record: LogRecord): LogEntry {
  const [first, ...path] = record.category;
  return {
    unixMs: record.timestamp,
    level: levelName(record.level),
    path: first === rootCategory ? path : record.category,
    // Every second part is a value put into the text.
    message: record.message.map((part, at) => at % 2 === 0 ? String(part) : shortened(String(part))).join(""),
    fields: record.properties,
  };
}

function levelName(level: LogLevel): LogEntry["level"] {
  switch (level) {
    case "trace":
      return "TRACE";
    case "debug":
      return "DEBUG";
    case "info":
      return "INFO";
    case "warning":
      return "WARN";
    case "error":
    case "fatal":
      return "ERROR";
  }
}
