/** A log for what is tried again and again: each trouble is told once, and that it is over. */
import type { TrainingLog } from "./log.ts";

/** See the file's comment. Only a message that repeats the one before it is left out. */
export class OncePerChange implements TrainingLog {
  readonly #log: TrainingLog;
  /** What tells one trouble from another; e.g. a message without the number of the job it names. */
  readonly #kindOf: (message: string) => string;
  #last: { readonly kind: string; readonly level: keyof TrainingLog } | undefined;
  #isQuiet = true;

  constructor(log: TrainingLog, kindOf: (message: string) => string = (message) => message) {
    this.#log = log;
    this.#kindOf = kindOf;
  }

  info(message: string): void {
    this.#tell("info", message);
  }
  warn(message: string): void {
    this.#tell("warn", message);
  }
  error(message: string): void {
    this.#tell("error", message);
  }

  /**
   * To be called now and then while things go well. Once nothing was told for a whole interval, the last trouble is over: its
   * return would be news.
   *
   * @param message said when the trouble was more than an `info`
   */
  goesWell(message?: string): void {
    if (this.#last !== undefined && this.#isQuiet) {
      if (message !== undefined && this.#last.level !== "info") this.#log.info(message);
      this.#last = undefined;
    }
    this.#isQuiet = true;
  }

  #tell(level: keyof TrainingLog, message: string): void {
    this.#isQuiet = false;
    const kind = this.#kindOf(message);
    if (kind === this.#last?.kind) return;
    this.#last = { kind, level };
    this.#log[level](message);
  }
}
