/** Ways in which the demonstration ends early. */

/** Something did not work, in words for people; `log` holds the last lines of the program concerned. */
export class DemoFailure extends Error {
  readonly log: readonly string[];

  constructor(message: string, log: readonly string[] = [], options?: ErrorOptions) {
    super(message, options);
    this.name = "DemoFailure";
    this.log = log;
  }
}

/** Somebody pressed Ctrl-C, or asked the process to end. */
export class Interrupted extends Error {
  constructor() {
    super("interrupted");
    this.name = "Interrupted";
  }
}
