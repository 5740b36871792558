/** Bodies of HTTP messages, read with a limit on their length and on the time that they take. */
import type { Clock } from "../runtime/clock.ts";

/**
 * The bytes of `body`.
 *
 * @returns undefined when there are more than `limit`; the rest is refused.
 * @throws the signal's reason when it is aborted before the end.
 */
export async function readBounded(
  body: ReadableStream<Uint8Array> | null,
  limit: number,
  signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const reader = body?.getReader();
  if (reader === undefined) return new Uint8Array(0);
  const cancel = () => void reader.cancel().catch(() => {});
  signal.addEventListener("abort", cancel, { once: true });
  try {
    const pieces: Uint8Array[] = [];
    let length = 0;
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      length += piece.value.length;
      if (length > limit) {
        await reader.cancel();
        return undefined;
      }
      pieces.push(piece.value);
    }
    // A body that was cancelled looks like one that has ended.
    signal.throwIfAborted();
    return joined(pieces, length);
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** Runs `action` with a signal that is aborted with `reason` after `limitMs` milliseconds. */
export async function withinTime<T>(
  clock: Clock,
  limitMs: number,
  reason: Error,
  action: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController();
  const cancel = clock.after(limitMs, () => late.abort(reason));
  try {
    return await action(late.signal);
  } finally {
    cancel();
  }
}

function joined(pieces: readonly Uint8Array[], length: number): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
