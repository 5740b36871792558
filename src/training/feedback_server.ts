/** Connections of the feedback socket: lines in, answers out, in order (online-training.md, sections 1.1 and 1.5). */
import { type Clock, sleep } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { OwnedSocket } from "../runtime/socket_node.ts";
import { formatAck, type IngestOutcome } from "./ack.ts";
import { FeedbackLineReader, isBlankLine } from "./feedback_line.ts";
import { type Line, LineBuffer } from "./line_buffer.ts";
import type { TrainingLog } from "./log.ts";
import type { TrainingMetrics } from "./metrics.ts";
import { OncePerChange } from "./once_per_change.ts";
import type { Sample } from "./sample.ts";

/** What a server is made of. */
export interface FeedbackServerOptions {
  readonly socket: OwnedSocket;
  readonly ingest: (sample: Sample) => IngestOutcome | Promise<IngestOutcome>;
  readonly nFeatures: number;
  readonly maxLineBytes: number;
  readonly clock: Clock;
  readonly log: TrainingLog;
  readonly metrics: TrainingMetrics;
}

/** Longest wait for handlers at the stop, all together, in milliseconds. */
const HANDLERS_MS = 1000;
/** Pause after a failed accept, e.g. when file descriptors ran out. */
const ACCEPT_PAUSE_MS = 100;
/** Answers are sent at the latest when so many characters wait. */
const ANSWER_CHARACTERS = 65_536;

const utf8 = new TextEncoder();

/** See the file's comment. */
export class FeedbackServer {
  readonly #options: FeedbackServerOptions;
  readonly #connections = new Set<Deno.Conn>();
  readonly #handlers = new Set<Promise<void>>();
  readonly #accepting: Promise<void>;
  #stopping = false;

  /** Begins to accept at once. */
  constructor(options: FeedbackServerOptions) {
    this.#options = options;
    this.#accepting = this.#accept();
  }

  /** Stops accepting, closes every connection, waits for their handlers at most a second, and withdraws the socket. */
  async close(): Promise<void> {
    if (this.#stopping) return;
    this.#stopping = true;
    await this.#options.socket.close();
    for (const connection of this.#connections) closeQuietly(connection);
    const waiting = new AbortController();
    const handlers = Promise.all([this.#accepting, ...this.#handlers]).then(() => waiting.abort());
    await Promise.race([handlers, sleep(this.#options.clock, HANDLERS_MS, waiting.signal)]);
  }

  async #accept(): Promise<void> {
    const { socket, clock } = this.#options, log = new OncePerChange(this.#options.log);
    while (!this.#stopping) {
      let connection: Deno.Conn;
      try {
        connection = await socket.listener.accept();
      } catch (thrown) {
        if (this.#stopping) return;
        log.error(`accepting a connection failed: ${errorText(thrown)}`);
        await sleep(clock, ACCEPT_PAUSE_MS);
        continue;
      }
      if (this.#stopping) {
        closeQuietly(connection);
        return;
      }
      log.goesWell("connections are accepted again");
      this.#connections.add(connection);
      const handler = this.#handle(connection).finally(() => {
        closeQuietly(connection);
        this.#connections.delete(connection);
        this.#handlers.delete(handler);
      });
      this.#handlers.add(handler);
    }
  }

  /** Never rejects: a connection that fails ends, the server goes on. */
  async #handle(connection: Deno.Conn): Promise<void> {
    const { nFeatures, maxLineBytes, log } = this.#options;
    const lines = new LineBuffer(maxLineBytes), reader = new FeedbackLineReader(nFeatures);
    try {
      while (await lines.fill(connection)) {
        if (!await this.#answerAll(connection, lines, reader)) return;
      }
    } catch (thrown) {
      // The client went away, or the stop closed the connection under us. An admitted sample stays admitted.
      if (!this.#stopping && !isDisconnect(thrown)) log.warn(`a connection failed: ${errorText(thrown)}`);
    }
  }

  /** Answers every complete line. Returns whether the connection goes on. */
  async #answerAll(connection: Deno.Conn, lines: LineBuffer, reader: FeedbackLineReader): Promise<boolean> {
    let answers = "";
    for (let line = lines.next(); line !== undefined; line = lines.next()) {
      if (line === "too long") {
        this.#options.metrics.samplesRejected++;
        const error = `request line exceeds ${this.#options.maxLineBytes} bytes`;
        await writeAll(connection, answers + formatAck({ kind: "refused", error, retryable: false }, ""));
        return false;
      }
      if (isBlankLine(line.bytes, line.start, line.end)) continue;
      const answer = this.#answer(line, reader);
      if (typeof answer === "string") answers += answer;
      else {
        // What is known already must not wait for a long step.
        await writeAll(connection, answers);
        answers = await answer;
      }
      if (answers.length >= ANSWER_CHARACTERS) {
        await writeAll(connection, answers);
        answers = "";
      }
    }
    await writeAll(connection, answers);
    return true;
  }

  #answer(line: Line, reader: FeedbackLineReader): string | Promise<string> {
    const request = reader.read(line.bytes, line.start, line.end);
    if (request.kind === "rejected") {
      this.#options.metrics.samplesRejected++;
      return formatAck({ kind: "refused", error: request.error, retryable: false }, "");
    }
    const outcome = this.#options.ingest(request.sample);
    if (!(outcome instanceof Promise)) return formatAck(outcome, request.jobId);
    return outcome.then((done) => formatAck(done, request.jobId));
  }
}

async function writeAll(connection: Deno.Conn, text: string): Promise<void> {
  if (text === "") return;
  const bytes = utf8.encode(text);
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

function closeQuietly(connection: Deno.Conn): void {
  try {
    connection.close();
  } catch (thrown) {
    if (!(thrown instanceof Deno.errors.BadResource)) throw thrown;
  }
}

function isDisconnect(thrown: unknown): boolean {
  return thrown instanceof Deno.errors.BrokenPipe || thrown instanceof Deno.errors.ConnectionReset ||
    thrown instanceof Deno.errors.NotConnected;
}
