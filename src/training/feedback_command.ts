/** `worker-sidecar feedback < FILE`: sends feedback from JSON lines (online-training.md, section 6.9). */
import { sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import { describeNeed, isGrantedNow } from "../settings/grants.ts";
import { type CommandIo, stderrLog } from "./command_io.ts";
import { FeedbackClient } from "./feedback_client.ts";
import type { FeedbackMessage } from "./feedback_message.ts";
import type { Line } from "./line_buffer.ts";
import { LineBuffer } from "./line_buffer.ts";
import { isBlankLine } from "./feedback_line.ts";
import { feedbackNeeds } from "./needs.ts";
import { feedbackSocketPath, type TrainingEnvironment } from "./settings.ts";

/** Longest input line, in bytes. */
const MAX_LINE_BYTES = 1_048_576;
/** Input lines whose fault is shown. */
const SHOWN_FAULTS = 20;
const PROGRESS_MS = 1000;
const DEFAULT_PATIENCE_S = 60;

/** Counts of one run. */
interface Tally {
  lines: number;
  invalid: number;
  sent: number;
}

/** Text of `--help`. */
export function feedbackUsage(program: string): string {
  return `Usage: ${program} feedback [--patience SECONDS] < FILE

Sends feedback to a trainer, one JSON object a line: {"job_id": TEXT, "features": [NUMBER...], "true_score": NUMBER}.
Other fields ride along. The trainer's socket is VMAFX_SIDECAR_SOCKET.

  --patience SECONDS   give up when no message was settled for so long (default ${DEFAULT_PATIENCE_S})

Exit code 0 when every line was delivered, 1 when not, 2 for a wrong call.
`;
}

/** Runs the command. Returns the exit code. */
export async function runFeedback(
  program: string,
  args: readonly string[],
  env: TrainingEnvironment,
  io: CommandIo,
): Promise<number> {
  if (args[0] === "--help" || args[0] === "-h") {
    io.stdout(feedbackUsage(program));
    return 0;
  }
  const patienceS = args.length === 0 ? DEFAULT_PATIENCE_S : args[0] === "--patience" ? Number(args[1]) : NaN;
  if (!(patienceS > 0) || args.length > 2) {
    io.stderr(feedbackUsage(program));
    return 2;
  }
  const socketPath = feedbackSocketPath(env);
  const missing = feedbackNeeds(socketPath).find((need) => !isGrantedNow(need));
  if (missing !== undefined) {
    io.stderr(`Error: ${describeNeed(missing)}\n`);
    return 1;
  }
  return await new FeedbackRun(socketPath, io, 1000 * patienceS).run();
}

class FeedbackRun {
  readonly #io: CommandIo;
  readonly #client: FeedbackClient;
  readonly #patienceMs: number;
  readonly #ended = new AbortController();
  readonly #tally: Tally = { lines: 0, invalid: 0, sent: 0 };
  #gaveUp = false;

  constructor(socketPath: string, io: CommandIo, patienceMs: number) {
    this.#io = io;
    this.#patienceMs = patienceMs;
    this.#client = new FeedbackClient({ socketPath, clock: io.clock, log: stderrLog(io) });
  }

  async run(): Promise<number> {
    const removers = (["SIGINT", "SIGTERM"] as const).map((name) => this.#io.onSignal(name, () => this.#giveUp(name)));
    const reporting = this.#report(), watching = this.#watch();
    this.#client.start();
    try {
      await this.#sendAll();
      while (this.#client.outstanding > 0 && !this.#gaveUp) await this.#client.changed();
    } catch (thrown) {
      this.#io.stderr(`Error: reading the input failed: ${errorText(thrown)}\n`);
      this.#tally.invalid++;
    }
    this.#ended.abort();
    await Promise.all([reporting, watching, this.#client.close()]);
    for (const remove of removers) remove();
    this.#io.stdout(`${this.#summary()}\n`);
    return this.#tally.invalid === 0 && this.#client.delivered === this.#tally.lines ? 0 : 1;
  }

  async #sendAll(): Promise<void> {
    const lines = new LineBuffer(MAX_LINE_BYTES);
    const reader = this.#io.stdin.getReader();
    try {
      const source = chunkSource(reader);
      while (!this.#gaveUp && await lines.fill(source)) {
        for (let line = lines.next(); line !== undefined && !this.#gaveUp; line = lines.next()) {
          if (line === "too long") {
            throw new RangeError(`line ${this.#tally.lines + 1} exceeds ${MAX_LINE_BYTES} bytes`);
          }
          await this.#sendLine(line);
        }
      }
    } finally {
      reader.releaseLock();
    }
  }

  async #sendLine(line: Line): Promise<void> {
    if (isBlankLine(line.bytes, line.start, line.end)) return;
    this.#tally.lines++;
    const message = parseMessage(line);
    if (typeof message === "string") {
      this.#tally.invalid++;
      if (this.#tally.invalid <= SHOWN_FAULTS) this.#io.stderr(`line ${this.#tally.lines}: ${message}\n`);
      return;
    }
    // A file can wait, so nothing is dropped for want of room.
    while (!this.#client.hasRoom && !this.#gaveUp) await this.#client.changed();
    if (!this.#gaveUp && this.#client.send(message)) this.#tally.sent++;
  }

  #giveUp(reason: string): void {
    if (this.#gaveUp) return;
    this.#gaveUp = true;
    this.#io.stderr(`giving up: ${reason}\n`);
    void this.#client.close();
    void this.#io.stdin.cancel().catch(() => {});
  }

  #settled(): number {
    return this.#client.delivered + this.#client.rejected + this.#client.dropped;
  }

  /** Gives up when nothing is settled for too long while something is outstanding. */
  async #watch(): Promise<void> {
    const { clock } = this.#io;
    let settled = -1, since = clock.now();
    while (await sleep(clock, Math.min(this.#patienceMs, PROGRESS_MS), this.#ended.signal)) {
      if (this.#settled() !== settled || this.#client.outstanding === 0) {
        settled = this.#settled();
        since = clock.now();
      } else if (clock.now() - since >= this.#patienceMs) {
        return this.#giveUp(`no message was settled for ${this.#patienceMs / 1000} s`);
      }
    }
  }

  async #report(): Promise<void> {
    let shown = "";
    while (await sleep(this.#io.clock, PROGRESS_MS, this.#ended.signal)) {
      if (this.#summary() === shown) continue;
      shown = this.#summary();
      this.#io.stderr(`${shown}\n`);
    }
  }

  #summary(): string {
    const { delivered, rejected, dropped } = this.#client;
    const { lines, invalid } = this.#tally;
    const rest = lines - invalid - delivered - rejected - dropped;
    return `${lines} lines: ${delivered} delivered, ${rejected} rejected, ${
      invalid + dropped
    } invalid, ${rest} not delivered`;
  }
}

/** A stream as something to read from; the last line needs no line feed. */
function chunkSource(reader: ReadableStreamDefaultReader<Uint8Array>) {
  let chunk = new Uint8Array(0);
  let ended = false;
  return {
    async read(into: Uint8Array): Promise<number | null> {
      while (chunk.length === 0) {
        if (ended) return null;
        const { done, value } = await reader.read();
        if (done) ended = true;
        chunk = done ? new Uint8Array([0x0a]) : new Uint8Array(value);
      }
      const count = Math.min(into.length, chunk.length);
      into.set(chunk.subarray(0, count));
      chunk = chunk.subarray(count);
      return count;
    },
  };
}

/** The message of a line, or what is wrong with it. */
function parseMessage(line: Line): FeedbackMessage | string {
  let value: unknown;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(line.bytes.subarray(line.start, line.end));
    value = JSON.parse(text);
  } catch (thrown) {
    return `not JSON: ${errorText(thrown)}`;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "not a JSON object";
  const { job_id: jobId = "", features, true_score: trueScore, ...extra } = value as Record<string, unknown>;
  if (typeof jobId !== "string") return "job_id is not a string";
  if (!Array.isArray(features) || !features.every((item): item is number => typeof item === "number")) {
    return "features is not an array of numbers";
  }
  if (typeof trueScore !== "number") return "true_score is not a number";
  return { jobId, features, trueScore, extra };
}
