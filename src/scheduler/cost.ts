/** Scheduler costs of items (spec/scheduler.md 3). Never billed and never used to cut an input; batches are packed by them. */

/** What an item that has no better estimate costs. */
export const UNIT_COST = 1;

/** While an item of prepared audio waits, no batch of its key exceeds this: 12 minutes, in milliseconds of audio. */
export const AUDIO_HARD_COST_CAP = 720_000;

/** Audio of more samples than this never shares a batch: 30 s at 16 kHz. */
export const AUDIO_SHARED_SAMPLES = 480_000;

/** The fields of an item that the scheduler looks at, where they differ from one item to the next. */
export interface ItemCost {
  readonly cost: number;
  readonly hardCostCap: number;
  readonly runsAlone: boolean;
}

/** Decoded audio as the sidecar hands it to the backend. */
export interface AudioLength {
  readonly durationMs: number;
  readonly sampleCount: number;
}

const PLAIN_ITEM: ItemCost = { cost: UNIT_COST, hardCostCap: Infinity, runsAlone: false };

/**
 * Cost of an encode or score item: the number of prepared tokens, at least 1, where the item has prepared tokens.
 *
 * @param inputIds rows of token ids, undefined when the item was not tokenised here
 * @param estimate what counts then: {@link UNIT_COST} for encode, `scoreCost` for score
 */
export function tokenCost(inputIds: readonly ArrayLike<unknown>[] | undefined, estimate: number): number {
  if (inputIds === undefined) return estimate;
  let tokens = 0;
  for (const row of inputIds) tokens += row.length;
  return Math.max(tokens, 1);
}

/** Cost of an extract item: milliseconds of prepared audio, which also bound its batch (3.3); 1 without audio. */
export function extractCost(audio: AudioLength | undefined): ItemCost {
  if (audio === undefined) return PLAIN_ITEM;
  return {
    cost: audio.durationMs,
    hardCostCap: AUDIO_HARD_COST_CAP,
    runsAlone: audio.sampleCount > AUDIO_SHARED_SAMPLES,
  };
}
