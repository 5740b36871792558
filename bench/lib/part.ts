/** What a part of the benchmark is. */
import type { Tools } from "./build.ts";

/** A value of the result, as JSON writes it. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json };

/** What a part gets to work with. */
export interface BenchOptions {
  /** Fewer items: to see that it works, not to quote. */
  readonly quick: boolean;
  readonly tools: Tools;
  /** Python with PyTorch, when `--with-torch` was given. */
  readonly torchPython: string | undefined;
  /** Tells a person what is happening; never part of the result. */
  readonly progress: (line: string) => void;
}

/** One part; `deno task bench NAME` runs it alone. */
export interface BenchPart {
  /** Name on the command line, e.g. `hot-path`; its key in the JSON result is `hot_path`. */
  readonly name: string;
  /** Measures. @returns the result, and the same for people. */
  run(options: BenchOptions): Promise<{ readonly result: Json; readonly lines: readonly string[] }>;
}

/** The median of some numbers; of an even number of them the lower middle one, so that it was really measured. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted[Math.floor((sorted.length - 1) / 2)];
  if (middle === undefined) throw new Error("the median of nothing");
  return middle;
}
