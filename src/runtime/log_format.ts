/** One line per log record: JSON as health-telemetry.md 9 has it, or text for people. */
import { errorText } from "./errors.ts";

/** What a log record holds, as far as it is written. */
export interface LogEntry {
  /** Wall-clock milliseconds. */
  readonly unixMs: number;
  readonly level: "TRACE" | "DEBUG" | "INFO" | "WARN" | "ERROR";
  /** Path below the root, e.g. `["ipc"]`. */
  readonly path: readonly string[];
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** `{"timestamp":…,"level":…,"fields":{"message":…},"target":…}` and a newline. */
export function jsonLine(entry: LogEntry): string {
  const fields: Record<string, unknown> = { message: entry.message };
  for (const [key, value] of Object.entries(entry.fields)) {
    if (key !== "message") fields[key] = plain(value);
  }
  return JSON.stringify({
    timestamp: timestamp(entry.unixMs),
    level: entry.level,
    fields,
    target: ["sie_server_sidecar", ...entry.path].join("::"),
  }) + "\n";
}

/** `2026-08-27T10:00:00.123Z WARN ipc: message key=value` and a newline; control characters cannot forge a second line. */
export function textLine(entry: LogEntry): string {
  const part = entry.path.length === 0 ? "" : ` ${entry.path.join("::")}`;
  const fields = Object.entries(entry.fields).map(([key, value]) => ` ${key}=${fieldText(value)}`).join("");
  const line = `${isoText(entry.unixMs)} ${entry.level.padEnd(5)}${part}: ${entry.message}${fields}`;
  return line.replace(/\p{Cc}/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`) + "\n";
}

function fieldText(value: unknown): string {
  const shown = plain(value);
  if (typeof shown === "string") return /^[^\s"=]+$/.test(shown) ? shown : JSON.stringify(shown);
  return JSON.stringify(shown) ?? "undefined";
}

/** Longest text of a value: room for a stack trace. What callers and peers send can be of any length. */
const MOST_CHARACTERS = 4000;

/** A text that fits a line, with its length where it was cut. */
export function shortened(text: string): string {
  if (text.length <= MOST_CHARACTERS) return text;
  return `${text.slice(0, MOST_CHARACTERS).toWellFormed()}… (${text.length} characters)`;
}

/** A value that JSON can hold. Errors are their text: stack traces have no place in a line. */
function plain(value: unknown): unknown {
  switch (typeof value) {
    case "string":
      return shortened(value);
    case "boolean":
    case "undefined":
      return value;
    case "number":
      return Number.isFinite(value) ? value : String(value);
    case "bigint":
    case "symbol":
    case "function":
      return String(value);
    case "object":
      if (value === null) return null;
      if (value instanceof Error) return shortened(errorText(value));
      try {
        return JSON.parse(JSON.stringify(value, (_key, inner) => typeof inner === "bigint" ? String(inner) : inner));
      } catch {
        return String(value);
      }
  }
}

/** RFC 3339 in UTC with microseconds. */
function timestamp(unixMs: number): string {
  return isoText(unixMs).replace("Z", "000Z");
}

function isoText(unixMs: number): string {
  return new Date(unixMs).toISOString();
}
