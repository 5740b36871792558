/**
 * Programs under test and their peers as child processes: started with a clean environment, read line by line, waited for
 * by conditions, ended by a signal, and never left behind.
 */
import { connect } from "node:net";

/** Limit of a wait that should end at once on a healthy machine; generous because CI machines are slow, not because it is used. */
export const PATIENCE_MS = 60_000;

/** How much of a program's output is kept, in characters; the oldest lines go first. */
const KEPT_OUTPUT = 2_000_000;

/** Variables that child processes inherit; everything else, above all `SIE_…`, is set by the test alone. */
const INHERITED = ["PATH", "HOME", "TMPDIR", "DENO_DIR", "XDG_CACHE_HOME", "WORKER_SIDECAR_CACHE", "LANG"];

/** What to start. */
export interface ProcessOptions {
  /** Short name for messages. */
  readonly name: string;
  /** Program and arguments. */
  readonly command: readonly string[];
  /** Variables beside the inherited ones. */
  readonly env?: Readonly<Record<string, string>>;
  /** Working directory; the test's own when absent. */
  readonly cwd?: string;
}

/** A running child process. Use it with `await using`, so that a failing test ends it too. */
export class ManagedProcess implements AsyncDisposable {
  readonly name: string;
  readonly pid: number;
  /** Settles when the process has ended and its output is read to the end. */
  readonly ended: Promise<Deno.CommandStatus>;
  #child: Deno.ChildProcess;
  #lines: string[] = [];
  #kept = 0;
  #status: Deno.CommandStatus | undefined;
  #watchers = new Set<() => void>();

  private constructor(options: ProcessOptions) {
    const [program = "", ...args] = options.command;
    const env: Record<string, string> = { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" };
    for (const name of INHERITED) {
      const value = Deno.env.get(name);
      if (value !== undefined) env[name] = value;
    }
    this.name = options.name;
    this.#child = new Deno.Command(program, {
      args,
      clearEnv: true,
      env: { ...env, ...options.env },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    }).spawn();
    this.pid = this.#child.pid;
    this.ended = this.#watch();
  }

  /** Starts a process. */
  static start(options: ProcessOptions): ManagedProcess {
    return new ManagedProcess(options);
  }

  /** True until the process has ended. */
  get running(): boolean {
    return this.#status === undefined;
  }

  /** Both streams so far, line by line, in the order of arrival. */
  get lines(): readonly string[] {
    return this.#lines;
  }

  /** Both streams so far as one text. */
  output(): string {
    return this.#lines.join("\n");
  }

  /** The first line, already printed or still to come, for which `matches` holds. */
  async line(what: string, matches: (line: string) => boolean, limitMs = PATIENCE_MS): Promise<string> {
    let next = 0;
    return await this.#until(what, limitMs, () => {
      for (; next < this.#lines.length; next++) {
        const line = this.#lines[next];
        if (line !== undefined && matches(line)) return line;
      }
      return undefined;
    });
  }

  /** Waits until `condition` holds, and fails at once when the process ends before that. */
  async until(what: string, condition: () => boolean | Promise<boolean>, limitMs = PATIENCE_MS): Promise<void> {
    await eventually(
      what,
      async () => {
        if (await condition()) return true;
        if (!this.running) throw new GaveUp(this.#report(`ended before ${what}`));
        return false;
      },
      limitMs,
      () => this.#report("is still running"),
    );
  }

  /** Sends a signal; nothing happens when the process has ended. */
  signal(signal: Deno.Signal): void {
    if (!this.running) return;
    try {
      this.#child.kill(signal);
    } catch (thrown) {
      // It may have ended a moment ago, unseen so far.
      if (!(thrown instanceof TypeError) && !(thrown instanceof Deno.errors.NotFound)) throw thrown;
    }
  }

  /** Waits for the end of the process; kills it and fails when that takes longer than `limitMs`. */
  async end(limitMs = PATIENCE_MS): Promise<Deno.CommandStatus> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const expired = new Promise<undefined>((resolve) => timer = setTimeout(() => resolve(undefined), limitMs));
    const status = await Promise.race([this.ended, expired]);
    clearTimeout(timer);
    if (status !== undefined) return status;
    this.signal("SIGKILL");
    await this.ended;
    throw new Error(this.#report(`did not end within ${limitMs} ms and was killed`));
  }

  /** Asks the process to end and waits for it. */
  async stop(signal: Deno.Signal = "SIGTERM", limitMs = PATIENCE_MS): Promise<Deno.CommandStatus> {
    this.signal(signal);
    return await this.end(limitMs);
  }

  /** Kills the process if a test left it running. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.signal("SIGKILL");
    await this.ended;
  }

  async #watch(): Promise<Deno.CommandStatus> {
    const [status] = await Promise.all([
      this.#child.status,
      this.#read(this.#child.stdout),
      this.#read(this.#child.stderr),
    ]);
    this.#status = status;
    this.#notify();
    return status;
  }

  async #read(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<void> {
    let rest = "";
    for await (const text of stream.pipeThrough(new TextDecoderStream())) {
      const parts = (rest + text).split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) this.#keep(line);
      this.#notify();
    }
    if (rest !== "") this.#keep(rest);
  }

  #keep(line: string): void {
    this.#lines.push(line);
    this.#kept += line.length;
    // Dropping from the front would move the indices that `line` remembers, so the text goes and the place stays.
    for (let i = 0; this.#kept > KEPT_OUTPUT && i < this.#lines.length; i++) {
      this.#kept -= this.#lines[i]?.length ?? 0;
      this.#lines[i] = "";
    }
  }

  #notify(): void {
    for (const watcher of this.#watchers) watcher();
  }

  #until<T>(what: string, limitMs: number, look: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = (action: () => void) => {
        clearTimeout(timer);
        this.#watchers.delete(check);
        action();
      };
      const check = () => {
        const found = look();
        if (found !== undefined) settle(() => resolve(found));
        else if (!this.running) settle(() => reject(new Error(this.#report(`ended before ${what}`))));
      };
      const timer = setTimeout(
        () => settle(() => reject(new Error(this.#report(`has not reached within ${limitMs} ms: ${what}`)))),
        limitMs,
      );
      this.#watchers.add(check);
      check();
    });
  }

  #report(happened: string): string {
    const status = this.#status === undefined ? "" : ` (exit code ${this.#status.code})`;
    return `${this.name} ${happened}${status}; its last output:\n${this.#lines.slice(-40).join("\n")}`;
  }
}

/** Thrown by a condition that can no longer come true; ends {@link eventually} at once. */
export class GaveUp extends Error {}

/**
 * Looks at a condition every few milliseconds until it returns something truthy, and returns that. An error thrown by the
 * condition counts as "not yet"; the last one is part of the message when the wait fails.
 */
export async function eventually<T>(
  what: string,
  condition: () => T | Promise<T>,
  limitMs = PATIENCE_MS,
  more: () => string = () => "",
): Promise<NonNullable<T>> {
  const end = performance.now() + limitMs;
  let last: unknown;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value;
      last = undefined;
    } catch (thrown) {
      if (thrown instanceof GaveUp) throw thrown;
      last = thrown;
    }
    if (performance.now() > end) break;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const reason = last === undefined ? "" : `; last error: ${last instanceof Error ? last.message : String(last)}`;
  const extra = more();
  throw new Error(`not within ${limitMs} ms: ${what}${reason}${extra === "" ? "" : `\n${extra}`}`);
}

/** A port of the loopback interface that was free a moment ago. */
export function freePort(): number {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0, transport: "tcp" });
  const { port } = listener.addr;
  listener.close();
  return port;
}

/** True when something accepts connections at the Unix socket `path`. */
export function accepts(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

/** A folder of one test, removed with everything in it. Use it with `using`. */
export class TestFolder implements Disposable {
  readonly path: string;

  constructor(prefix = "ws-") {
    // Short, because the path of a Unix socket may have 107 bytes at most.
    this.path = Deno.makeTempDirSync({ prefix });
  }

  /** Path of something in the folder. */
  file(name: string): string {
    return `${this.path}/${name}`;
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.path, { recursive: true });
  }
}
