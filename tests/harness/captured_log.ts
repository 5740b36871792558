/** What the code under test logs. Only one at a time: logging is the process's. */
import { configureLogging, resetLogging } from "../../src/runtime/log.ts";

/** Collects log lines. Use it with `using`. */
export class CapturedLog implements Disposable {
  readonly lines: string[] = [];

  /** @param filter as in `RUST_LOG`-like settings; everything from `info` on when absent */
  constructor(filter = "info") {
    configureLogging({ filter, format: "json", write: (line) => this.lines.push(line) });
  }

  /** Lines that match. */
  matching(text: RegExp): string[] {
    return this.lines.filter((line) => text.test(line));
  }

  [Symbol.dispose](): void {
    resetLogging();
  }
}
