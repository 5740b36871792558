/** One row of the table of variables. */
import type { Kind } from "./kinds.ts";
import type { Settings } from "./settings.ts";

/** Part of the program that a variable belongs to; a section of docs/settings.md. */
export type Area =
  | "lane"
  | "ingest"
  | "nats"
  | "ipc"
  | "pull"
  | "dispatch"
  | "scheduler"
  | "batcher"
  | "batch_time"
  | "admission"
  | "payload"
  | "probes"
  | "health"
  | "config"
  | "deadlines"
  | "telemetry"
  | "log"
  | "debug";

/** Effective value of a variable, in its own unit. */
export type Shown = string | number | boolean | readonly string[] | undefined;

/** Everything that is known about one variable. Parsing, help, `check` and the documentation follow from it. */
export interface Variable<T> extends Kind<T> {
  readonly area: Area;
  /** What it does, one sentence without the values that the other fields give. */
  readonly doc: string;
  /** Long flag with its dashes. A variable with a flag is checked strictly, on the command line and in the environment. */
  readonly flag?: `--${string}`;
  /** The command line or the environment must give it. */
  readonly required?: true;
  readonly unit?: string;
  /** `all`: never printed. `userinfo`: a URL that is printed without user and password. */
  readonly hidden?: "all" | "userinfo";
  /** Not of the reference; a bad value stops the start. */
  readonly ours?: true;
  /** Read and checked, but the part that uses it is not built yet. */
  readonly later?: true;
  /** The effective value out of the finished settings. */
  show(settings: Settings): Shown;
}
