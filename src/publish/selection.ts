/** Which bytes a successful outcome is published with (spec/preparation.md 8 and 8.6). */
import type { BatchOutcome, ItemOutcome } from "../wire/ipc/batch_outcome.ts";
import type { BatchedF16Buffer, BatchedF16Item } from "../wire/ipc/raw_output.ts";
import { textOf } from "../wire/msgpack/keys.ts";
import { type FramableOutput, shapeFault } from "./framing.ts";

/** What to publish. */
export type ResultSource =
  /** The outcome's own `result_msgpack`, whatever it is. */
  | { readonly kind: "as_is" }
  /** A typed output, to be framed. */
  | { readonly kind: "framed"; readonly raw: FramableOutput }
  /** A typed output that cannot be framed: an error with this text, code `raw_output_shape_error`. */
  | { readonly kind: "fault"; readonly message: string };

const AS_IS: ResultSource = { kind: "as_is" };

/**
 * Chooses for one outcome: bytes from the backend always win, only successes are shaped, a slice of a shared buffer comes before
 * `raw_output`.
 *
 * @param slices the answer's shared buffers by item; undefined when it has none
 */
export function resultSource(answer: BatchOutcome, outcome: ItemOutcome, slices: HalfSlices | undefined): ResultSource {
  if (outcome.disposition !== "publish_and_ack" || outcome.resultLength > 0) return AS_IS;
  if (slices !== undefined) {
    const slice = slices.of(textOf(answer.bytes, outcome.workItemIdAt, outcome.workItemIdLength));
    if (slice !== undefined) return slice;
  }
  const raw = outcome.rawOutput;
  if (raw === undefined) return AS_IS;
  const fault = shapeFault(raw);
  if (fault !== undefined || raw.kind === "none") return { kind: "fault", message: `raw_output shape: ${fault}` };
  return { kind: "framed", raw };
}

/** The items of an answer's shared half buffers, found by work item id. */
export class HalfSlices {
  readonly #sources = new Map<string, ResultSource>();

  constructor(buffers: readonly BatchedF16Buffer[]) {
    for (const buffer of buffers) {
      for (const item of buffer.items) {
        const source = this.#sources.has(item.workItemId)
          ? fault("batched f16 multivector", "duplicate batched f16 multivector work_item_id")
          : sliceOf(buffer.valuesF16, item);
        this.#sources.set(item.workItemId, source);
      }
    }
  }

  /** What the shared buffers hold for an item; undefined when none of them names it. */
  of(workItemId: string): ResultSource | undefined {
    return this.#sources.get(workItemId);
  }
}

function sliceOf(halves: Uint8Array, item: BatchedF16Item): ResultSource {
  const { byteOffset, byteLength, numTokens, tokenDims } = item;
  if (byteOffset % 2 !== 0 || byteLength % 2 !== 0) {
    return fault("batched f16 multivector", "batched f16 multivector range is not f16-aligned");
  }
  if (byteOffset + byteLength > halves.length) {
    return fault("batched f16 multivector", "batched f16 multivector byte range exceeds buffer");
  }
  const raw = {
    kind: "multivector",
    values: NO_VALUES,
    numTokens,
    tokenDims,
    dtype: "float16",
    valuesF16: halves.subarray(byteOffset, byteOffset + byteLength),
  } as const;
  const wrong = shapeFault(raw);
  return wrong === undefined ? { kind: "framed", raw } : fault("batched f16 multivector shape", wrong);
}

const NO_VALUES = new Float32Array(0);

function fault(where: string, why: string): ResultSource {
  return { kind: "fault", message: `${where}: ${why}` };
}
