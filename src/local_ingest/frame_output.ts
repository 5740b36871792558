/**
 * The writing side of one connection: one writer, whole frames in the order in which they were queued, bounded in number and bytes,
 * and a time limit for each frame from the call on (spec/local-ingest.md 10). A peer that does not keep up loses its connection; it
 * holds up nobody else.
 */
import { ByteBudget } from "../runtime/byte_budget.ts";
import type { CancelTimer, Clock } from "../runtime/clock.ts";
import { Semaphore } from "../runtime/semaphore.ts";
import type { ByteSink } from "../wire/frames.ts";
import { IngestLimits } from "../wire/ingest/limits.ts";
import type { OutgoingFrame } from "../wire/ingest/response.ts";

/** What became of a frame: on the wire, abandoned before its first byte, or lost with the connection. */
export type SendOutcome = "written" | "abandoned" | "failed";

/** Small pieces are gathered up to this size, so that many small frames go out in one write. */
const GATHER_BYTES = 65_536;
/** A piece from this size on is written by itself instead of being copied. */
const DIRECT_BYTES = 16_384;

/** Gathering buffers that no connection uses at the moment: one is needed only while something is written. */
const spareBuffers: Uint8Array[] = [];
/** More spare ones are left to the garbage collector. */
const MOST_SPARE_BUFFERS = 16;
const NO_BUFFER = new Uint8Array(0);

interface Entry {
  readonly frame: OutgoingFrame;
  readonly deadline: number;
  resolve(outcome: SendOutcome): void;
  /** Abandoned by its sender; skipped unless its writing has begun. */
  abandoned: boolean;
  begun: boolean;
}

/** Writes frames. */
export class FrameOutput {
  readonly #sink: ByteSink;
  readonly #clock: Clock;
  readonly #onFailure: (reason: string) => void;
  readonly #places = new Semaphore(IngestLimits.pendingWritesPerConnection);
  readonly #bytes = new ByteBudget({ limit: IngestLimits.bufferedWriteBytes });
  /** Sends that are not done yet, oldest first: waiting for room, queued or being written. */
  readonly #unfinished = new Set<Entry>();
  readonly #queue: Entry[] = [];
  /** Where small pieces are gathered; {@link NO_BUFFER} while nothing is written. */
  #gathered: Uint8Array = NO_BUFFER;
  readonly #closing = new AbortController();
  readonly #drainWaiters: (() => void)[] = [];
  #gatheredLength = 0;
  #writing = false;
  #failed = false;
  #cancelTimer: CancelTimer | undefined;

  /** @param onFailure called once, when a write failed or took too long; the connection is to be closed then */
  constructor(sink: ByteSink, clock: Clock, onFailure: (reason: string) => void) {
    this.#sink = sink;
    this.#clock = clock;
    this.#onFailure = onFailure;
  }

  /** Frames that are not done yet. */
  get unfinished(): number {
    return this.#unfinished.size;
  }

  /** Bytes queued or being written. */
  get queuedBytes(): number {
    return this.#bytes.used;
  }

  /**
   * Sends a frame. The bytes must not change until the outcome is there.
   *
   * @param signal when aborted before the frame's turn has come, the frame is skipped and the caller goes on at once; a frame that
   * has been begun is finished
   */
  async send(frame: OutgoingFrame, signal?: AbortSignal): Promise<SendOutcome> {
    if (this.#failed) return "failed";
    if (signal?.aborted) return "abandoned";
    const { promise, resolve } = Promise.withResolvers<SendOutcome>();
    const deadline = this.#clock.now() + IngestLimits.writeTimeoutMs;
    const entry: Entry = { frame, deadline, resolve, abandoned: false, begun: false };
    this.#unfinished.add(entry);
    this.#watch(deadline);
    const onAbort = () => {
      if (entry.begun) return;
      entry.abandoned = true;
      resolve("abandoned");
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    // Room is usually there, and then nothing is waited for.
    if (this.#places.tryAcquire()) {
      if (this.#bytes.tryReserve(frame.length)) this.#enqueue(entry);
      else this.#enqueueWhenRoom(entry, true);
    } else this.#enqueueWhenRoom(entry, false);
    const outcome = await promise;
    signal?.removeEventListener("abort", onAbort);
    return outcome;
  }

  /** Gives all frames up; nothing more is written. */
  close(): void {
    this.#fail(undefined);
  }

  /** Resolves when no frame is unfinished: everything sent so far has been written, or given up. */
  drained(): Promise<void> {
    if (this.#unfinished.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#drainWaiters.push(resolve));
  }

  async #enqueueWhenRoom(entry: Entry, hasPlace: boolean): Promise<void> {
    const { signal } = this.#closing;
    const granted = (hasPlace || await this.#places.acquire(signal)) &&
      await this.#bytes.acquire(entry.frame.length, signal);
    if (granted) this.#enqueue(entry);
  }

  #enqueue(entry: Entry): void {
    this.#queue.push(entry);
    if (!this.#writing) this.#run();
  }

  async #run(): Promise<void> {
    this.#writing = true;
    this.#gathered = spareBuffers.pop() ?? new Uint8Array(GATHER_BYTES);
    const written: Entry[] = [];
    try {
      // A turn of the microtask queue lets everything that is ready to send be gathered into one write.
      await undefined;
      for (let entry = this.#queue.shift(); entry !== undefined; entry = this.#queue.shift()) {
        if (!entry.abandoned) {
          entry.begun = true;
          for (const piece of entry.frame.pieces) await this.#put(piece);
        }
        written.push(entry);
        if (this.#queue.length > 0 && this.#gatheredLength > 0) continue;
        await this.#flush();
        for (const done of written.splice(0)) this.#finish(done);
      }
    } catch (thrown) {
      this.#fail(thrown instanceof Error ? thrown.message : String(thrown));
    }
    // No write is under way any more that could still look into it.
    if (spareBuffers.length < MOST_SPARE_BUFFERS) spareBuffers.push(this.#gathered);
    this.#gathered = NO_BUFFER;
    this.#gatheredLength = 0;
    this.#writing = false;
  }

  /** Gathers a piece, or writes it. */
  async #put(piece: Uint8Array): Promise<void> {
    if (this.#gatheredLength + piece.length > GATHER_BYTES) await this.#flush();
    if (piece.length >= DIRECT_BYTES) {
      await this.#flush();
      return await this.#write(piece);
    }
    this.#gathered.set(piece, this.#gatheredLength);
    this.#gatheredLength += piece.length;
  }

  async #flush(): Promise<void> {
    const length = this.#gatheredLength;
    this.#gatheredLength = 0;
    if (length > 0) await this.#write(this.#gathered.subarray(0, length));
  }

  async #write(bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length;) {
      if (this.#failed) throw new Error("the connection is closed");
      done += await this.#sink.write(bytes.subarray(done));
    }
  }

  #finish(entry: Entry): void {
    if (this.#failed) return;
    this.#unfinished.delete(entry);
    this.#places.release();
    this.#bytes.release(entry.frame.length);
    entry.resolve("written");
    if (this.#unfinished.size === 0) this.#tellDrained();
  }

  #tellDrained(): void {
    for (const resolve of this.#drainWaiters.splice(0)) resolve();
  }

  /** One timer serves all frames: the oldest one is due first. */
  #watch(deadline: number): void {
    if (this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#clock.after(deadline - this.#clock.now(), () => {
      this.#cancelTimer = undefined;
      const [oldest] = this.#unfinished;
      if (oldest === undefined) return;
      if (oldest.deadline > this.#clock.now()) return this.#watch(oldest.deadline);
      this.#fail(`a frame was not written within ${IngestLimits.writeTimeoutMs} ms`);
    });
  }

  #fail(reason: string | undefined): void {
    if (this.#failed) return;
    this.#failed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#closing.abort();
    this.#queue.length = 0;
    const lost = [...this.#unfinished];
    this.#unfinished.clear();
    for (const entry of lost) entry.resolve("failed");
    this.#tellDrained();
    if (reason !== undefined) this.#onFailure(reason);
  }
}
