/** Output for people: one line that is renewed while something goes on, on a terminal; plain lines everywhere else. */

import { systemClock } from "../src/runtime/clock.ts";

/** Where text goes. `Deno.stdout` is one. */
export interface Output {
  writeSync(bytes: Uint8Array): number;
  isTerminal(): boolean;
}

const WIDEST = 120;
const NARROWEST = 40;
const REFRESH_MS = 50;
const INDENT = "  ";
const LABEL_WIDTH = 13;

/** Writes lines, steps and streams. */
export class Screen {
  /** Characters in a line. */
  readonly width: number;
  readonly #output: Output;
  readonly #terminal: boolean;
  readonly #bold: boolean;
  #progressShown = false;
  #progressAt = -Infinity;
  #column = 0;
  #spaceDue = false;

  /** @param columns width of the terminal; ignored where there is none */
  constructor(output: Output, columns: number | undefined, noColor: boolean) {
    this.#output = output;
    this.#terminal = output.isTerminal();
    this.#bold = this.#terminal && !noColor;
    const wanted = this.#terminal && columns !== undefined ? columns - 1 : WIDEST;
    this.width = Math.min(WIDEST, Math.max(NARROWEST, wanted));
  }

  /** Writes a line. */
  line(text = ""): void {
    this.#endProgress();
    this.#write(`${text}\n`);
  }

  /** Writes a title with an empty line above it. */
  title(text: string): void {
    this.line();
    this.line(this.#bold ? `\x1b[1m${text}\x1b[22m` : text);
  }

  /** Says what is going on, on a terminal, until the next line is written. */
  progress(label: string, text: string): void {
    const now = systemClock.now();
    if (!this.#terminal || (this.#progressShown && now - this.#progressAt < REFRESH_MS)) return;
    this.#write(`\r\x1b[K${stepText(label, text).slice(0, this.width)}`);
    this.#progressShown = true;
    this.#progressAt = now;
  }

  /** Says what has been done. */
  step(label: string, text: string): void {
    this.line(stepText(label, text));
  }

  /** Goes on with a text that is broken into lines between its words. A word may come in pieces. */
  flow(text: string): void {
    this.#endProgress();
    for (const [part] of text.matchAll(/\s+|\S+/gu)) {
      if (/^\s/u.test(part)) {
        this.#spaceDue = this.#column > 0;
        continue;
      }
      if (this.#spaceDue && this.#column + 1 + part.length > this.width) this.endFlow();
      const shown = (this.#column === 0 ? INDENT : this.#spaceDue ? " " : "") + part;
      this.#write(shown);
      this.#column += shown.length;
      this.#spaceDue = false;
    }
  }

  /** Ends a text begun with {@link flow}, or its present line. */
  endFlow(): void {
    if (this.#column > 0) this.#write("\n");
    this.#column = 0;
    this.#spaceDue = false;
  }

  #endProgress(): void {
    if (this.#progressShown) this.#write("\r\x1b[K");
    this.#progressShown = false;
  }

  #write(text: string): void {
    let rest = new TextEncoder().encode(text);
    while (rest.length > 0) rest = rest.subarray(this.#output.writeSync(rest));
  }
}

function stepText(label: string, text: string): string {
  return `${INDENT}${label.padEnd(LABEL_WIDTH)}${text}`;
}

/** Rows with their columns under each other: text to the left, numbers to the right. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)));
  const isNumeric = widths.map((_, at) => rows.slice(1).every((row) => /^[\d.,-]+$/.test(row[at] ?? "")));
  return rows.map((row) => {
    const cells = row.map((cell, at) => isNumeric[at] ? cell.padStart(widths[at] ?? 0) : cell.padEnd(widths[at] ?? 0));
    return `${INDENT}${cells.join(INDENT)}`.trimEnd();
  });
}

/** A text of at most `width` characters, cut with an ellipsis. */
export function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1)).trimEnd()}…`;
}
