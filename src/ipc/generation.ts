/** ProcessGenerate (spec/ipc.md 1.7, 5): one connection a stream, the next frame read only when it is asked for. */
import type { Clock } from "../runtime/clock.ts";
import { readResponse } from "../wire/ipc/envelope.ts";
import type { GenerateEvent, GenerateRequest } from "../wire/ipc/generate_event.ts";
import { ProcessGenerate } from "../wire/ipc/methods.ts";
import { MsgpackWriter } from "../wire/msgpack/writer.ts";
import { checkResponse, decodeError } from "./answer.ts";
import { type Connect, Connection } from "./connection.ts";
import { IpcError } from "./errors.ts";
import { encodeRequest } from "./transport.ts";

/** Room for the envelope around a work item, so that a large one is written without growing; more is allowed. */
const ENVELOPE_BYTES = 1024;

/** What a generation needs. */
export interface GenerationOptions {
  readonly path: string;
  readonly connect: Connect;
  readonly clock: Clock;
  /** Longest wait for one frame; connecting and writing have no limit. */
  readonly frameTimeoutMs: number;
  readonly requestId: string;
  /** Aborting closes the connection; the stream then rejects. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Runs one generation. The stream ends after `done`; everything else that ends it is an {@link IpcError}. Leaving the iteration
 * early closes the connection.
 */
export async function* generateEvents(
  options: GenerationOptions,
  request: GenerateRequest,
): AsyncGenerator<GenerateEvent, void, undefined> {
  const { signal, clock, frameTimeoutMs } = options;
  if (signal?.aborted) throw aborted();
  const writer = new MsgpackWriter(request.workItemMsgpack.length + ENVELOPE_BYTES);
  const frame = encodeRequest(writer, ProcessGenerate, options.requestId, request);
  const connection = await Connection.open(options.connect, options.path);
  const onAbort = () => connection.close();
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    if (signal?.aborted) throw aborted();
    await unlessAborted(connection.write(frame), signal);
    for (;;) {
      const event = decodeEvent(await readWithin(connection, clock, frameTimeoutMs, signal), options.requestId);
      yield event;
      if (event.kind === "done") return;
    }
  } finally {
    signal?.removeEventListener("abort", onAbort);
    connection.close();
  }
}

function readWithin(
  connection: Connection,
  clock: Clock,
  limitMs: number,
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  let expired = false;
  const cancel = clock.after(limitMs, () => {
    expired = true;
    connection.close();
  });
  return connection.read().finally(cancel).catch((thrown: unknown) => {
    if (expired) throw new IpcError("timeout", `ProcessGenerate: no event within ${limitMs} ms`, { cause: thrown });
    throw signal?.aborted ? aborted(thrown) : thrown;
  });
}

/** A write that hangs need not end by closing the connection, so the caller stops waiting for it. */
function unlessAborted(writing: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return writing;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(aborted());
    signal.addEventListener("abort", onAbort, { once: true });
    writing.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** Generation answers are never chunked: whatever claims to be a chunk does not decode. */
function decodeEvent(frame: Uint8Array, requestId: string): GenerateEvent {
  let response;
  try {
    response = readResponse(frame, ProcessGenerate);
  } catch (thrown) {
    throw decodeError(ProcessGenerate, thrown);
  }
  if (response.chunkKind) throw decodeError(ProcessGenerate, new Error("a chunk within a generation stream"));
  return checkResponse(response, requestId);
}

function aborted(cause?: unknown): IpcError {
  return new IpcError("io", "ProcessGenerate: aborted by the caller", { io: "closed", cause });
}
