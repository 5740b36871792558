/** The parameters of a generation as they go to the backend (spec/generation.md 4, steps 3 and 4). */
import { hazardText } from "../dispatch/input_shape.ts";
import { invalidInput, type Refusal } from "../dispatch/refusals.ts";
import { normalizeGenerateMedia } from "../prepare/media_generate.ts";
import type { Clock } from "../runtime/clock.ts";
import { Pace } from "../runtime/pace.ts";
import { MsgpackReader, UNSAFE } from "../wire/msgpack/reader.ts";
import { fieldBit, type WorkItem, WorkItemField } from "../wire/work_item.ts";

/** Parameters to put in place of the item's own, undefined when those go on as they came; or why they are refused. */
export type GenerateInput = { readonly bytes: Uint8Array | undefined } | { readonly refusal: Refusal };

const F = WorkItemField;

/**
 * Everything that goes on as it came: what the backend's decoder stumbles over would end the stream before it begins, again at each
 * redelivery.
 */
const PASSED_ON = [
  [F.generate, "generate"],
  [F.options, "options"],
  [F.item, "item"],
  [F.queryItem, "query_item"],
  [F.scoreItems, "score_items"],
  [F.outputSchema, "output_schema"],
] as const;

/**
 * Checks the parameters and turns base64 media into bytes.
 *
 * @param fetched parameters from the payload store, which take the place of `generate`; must be one whole value
 */
export function generateInput(work: WorkItem, fetched: Uint8Array | undefined): GenerateInput {
  for (const [field, name] of PASSED_ON) {
    const replaced = field === F.generate && fetched !== undefined;
    if (!replaced && (work.unsafeFields & fieldBit(field)) !== 0) {
      return { refusal: invalidInput(hazardText(name, work.reader(field))) };
    }
  }
  if (fetched !== undefined && (new MsgpackReader(fetched).skip() & UNSAFE) !== 0) {
    return { refusal: invalidInput(hazardText("generate", new MsgpackReader(fetched))) };
  }
  if (fetched === undefined && !work.has(F.generate)) return { bytes: undefined };
  const media = normalizeGenerateMedia(fetched === undefined ? work.reader(F.generate) : new MsgpackReader(fetched));
  switch (media.kind) {
    case "refused":
      return { refusal: invalidInput(media.message) };
    case "rewritten":
      return { bytes: media.generate };
    case "unchanged":
      return { bytes: fetched };
  }
}

/** Media of a size that counts have been decoded: others get their turn before they are copied into the request. */
export async function afterTurn(bytes: Uint8Array | undefined, clock: Clock): Promise<void> {
  await new Pace(clock).worked(bytes?.length ?? 0);
}
