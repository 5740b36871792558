/** The programs that the demonstration starts: their last lines are kept, and each is ended in order. */
import { sleep, systemClock } from "../src/runtime/clock.ts";
import { DemoFailure } from "./failure.ts";

/** Lines of output that are kept to be shown when something goes wrong. */
const KEPT_LINES = 200;
/** Lines that a failure shows. */
const SHOWN_LINES = 12;
/** Time to end in order; after that it is killed. The sidecar's own limits are below it. */
const STOP_LIMIT_MS = 30_000;

/** Settings in the caller's shell are not meant for the demonstration. */
const NOT_INHERITED = /^(SIE_|OTEL_|RUST_|HOSTNAME$)/;

/** What to start. */
export interface Program {
  /** What people call it. */
  readonly name: string;
  readonly command: readonly string[];
  /** Variables beside the inherited ones. */
  readonly env?: Readonly<Record<string, string>>;
  /** Exit codes that are in order, beside 0. */
  readonly goodCodes?: readonly number[];
}

/** A running program. */
export class Child {
  readonly name: string;
  /** Settles when the program has ended and its output is read. */
  readonly ended: Promise<Deno.CommandStatus>;
  readonly #process: Deno.ChildProcess;
  readonly #goodCodes: readonly number[];
  readonly #watchers = new Set<() => void>();
  #lines: string[] = [];
  #status: Deno.CommandStatus | undefined;
  #stopping = false;

  private constructor(program: Program) {
    const [path = "", ...args] = program.command;
    this.name = program.name;
    this.#goodCodes = [0, ...program.goodCodes ?? []];
    this.#process = spawn(program, path, args);
    this.ended = this.#watch();
  }

  /**
   * Starts a program.
   *
   * @throws DemoFailure when there is no such program, or it may not be started
   */
  static start(program: Program): Child {
    try {
      return new Child(program);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new DemoFailure(`${program.name} cannot be started: ${reason}`, [], { cause });
    }
  }

  /** Called when the program ends although nobody asked it to. */
  onCrash(report: (failure: DemoFailure) => void): void {
    void this.ended.then(() => {
      if (!this.#stopping) report(this.#failure("ended early"));
    });
  }

  /**
   * Waits for a line of output.
   *
   * @param pick the part that is wanted, or undefined for any other line
   * @throws DemoFailure (rejection) when the program ends before that or `limitMs` pass; the reason of `signal`
   */
  async line<T>(pick: (line: string) => T | undefined, limitMs: number, signal: AbortSignal): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let seen = 0;
    const look = () => {
      for (; seen < this.#lines.length; seen++) {
        const found = pick(this.#lines[seen] ?? "");
        if (found !== undefined) return resolve(found);
      }
      if (this.#status !== undefined) reject(this.#failure("ended early"));
    };
    const cancel = systemClock.after(limitMs, () => reject(this.#failure(`did not start within ${limitMs / 1000} s`)));
    const onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    this.#watchers.add(look);
    try {
      signal.throwIfAborted();
      look();
      return await promise;
    } finally {
      cancel();
      signal.removeEventListener("abort", onAbort);
      this.#watchers.delete(look);
    }
  }

  /**
   * Asks the program to end and waits until it has.
   *
   * @throws DemoFailure (rejection) when it does not end in order
   */
  async stop(): Promise<void> {
    if (this.#status !== undefined && !this.#stopping) return;
    this.#stopping = true;
    this.#signal("SIGTERM");
    const limit = new AbortController();
    const inTime = await Promise.race([this.ended, sleep(systemClock, STOP_LIMIT_MS, limit.signal)]);
    limit.abort();
    if (typeof inTime === "boolean") {
      this.kill();
      await this.ended;
      throw this.#failure(`did not end within ${STOP_LIMIT_MS / 1000} s and was killed`);
    }
    if (!this.#goodCodes.includes(inTime.code)) throw this.#failure("did not end in order");
  }

  /** Ends it at once. */
  kill(): void {
    this.#stopping = true;
    this.#signal("SIGKILL");
  }

  #signal(signal: Deno.Signal): void {
    if (this.#status !== undefined) return;
    try {
      this.#process.kill(signal);
    } catch (thrown) {
      // It may have ended a moment ago, unseen so far.
      if (!(thrown instanceof TypeError) && !(thrown instanceof Deno.errors.NotFound)) throw thrown;
    }
  }

  #failure(happened: string): DemoFailure {
    const status = this.#status;
    const code = status === undefined
      ? ""
      : status.signal === null
      ? ` (exit code ${status.code})`
      : ` (${status.signal})`;
    const log = this.#lines.slice(-SHOWN_LINES);
    return new DemoFailure(`${this.name} ${happened}${code}`, log.length > 0 ? log : ["(it has printed nothing)"]);
  }

  async #watch(): Promise<Deno.CommandStatus> {
    const { status, stdout, stderr } = this.#process;
    const [ended] = await Promise.all([status, this.#read(stdout), this.#read(stderr)]);
    this.#status = ended;
    this.#notify();
    return ended;
  }

  async #read(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<void> {
    let rest = "";
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      const parts = (rest + text).split("\n");
      rest = parts.pop() ?? "";
      this.#keep(parts);
    }
    if (rest !== "") this.#keep([rest]);
  }

  /** Lines are dropped only when nobody is looking for one, whose place they would move. */
  #keep(lines: readonly string[]): void {
    this.#lines.push(...lines);
    if (this.#watchers.size === 0) this.#lines = this.#lines.slice(-KEPT_LINES);
    this.#notify();
  }

  #notify(): void {
    for (const watcher of this.#watchers) watcher();
  }
}

function spawn(program: Program, path: string, args: string[]): Deno.ChildProcess {
  const inherited = Object.entries(Deno.env.toObject()).filter(([name]) => !NOT_INHERITED.test(name));
  return new Deno.Command(path, {
    args,
    clearEnv: true,
    env: { ...Object.fromEntries(inherited), NO_COLOR: "1", ...program.env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    // A terminal sends Ctrl-C to its whole group; these are ended one after the other instead.
    detached: true,
  }).spawn();
}

/** Everything that was started, in order. */
export class Children {
  readonly #children: Child[] = [];
  readonly #onCrash: (failure: DemoFailure) => void;

  /** @param onCrash told when one ends although nobody asked it to */
  constructor(onCrash: (failure: DemoFailure) => void) {
    this.#onCrash = onCrash;
  }

  /** Starts a program; see {@link Child.start}. */
  start(program: Program): Child {
    const child = Child.start(program);
    this.#children.push(child);
    child.onCrash(this.#onCrash);
    return child;
  }

  /**
   * Ends the programs, the last one started first: the sidecar drains while its backend and its broker are still there.
   *
   * @returns what went wrong; the others are ended all the same
   */
  async stopAll(): Promise<DemoFailure[]> {
    const failures: DemoFailure[] = [];
    for (const child of this.#children.toReversed()) {
      try {
        await child.stop();
      } catch (thrown) {
        if (!(thrown instanceof DemoFailure)) throw thrown;
        failures.push(thrown);
      }
    }
    return failures;
  }

  /** Ends all of them at once. */
  killAll(): void {
    for (const child of this.#children) child.kill();
  }
}
