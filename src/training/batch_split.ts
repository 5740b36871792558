/** How a batch is shared between new and replayed rows (online-training.md, section 2.5). */
import { TrainingError } from "./errors.ts";

/** Rows of one batch. */
export interface BatchSplit {
  /** Rows drawn from the replay buffer. */
  readonly replayRows: number;
  /** Rows taken from the queue; a step is due when so many wait. */
  readonly newRows: number;
}

/**
 * Splits a batch of `batchSize` rows: trunc(B·R) replayed rows in double arithmetic, the rest new.
 *
 * @param pendingCapacity admitted samples that may wait, when that is to be checked: it must hold one window.
 * @throws TrainingError `invalid_settings` with the reference's texts.
 */
export function splitBatch(batchSize: number, replayMix: number, pendingCapacity?: number): BatchSplit {
  if (!(batchSize > 0)) throw new TrainingError("invalid_settings", "batch_size must be positive");
  if (!(replayMix >= 0 && replayMix < 1)) {
    throw new TrainingError("invalid_settings", "replay_mix_ratio must be in [0.0, 1.0)");
  }
  const replayRows = Math.trunc(batchSize * replayMix);
  const newRows = batchSize - replayRows;
  if (pendingCapacity !== undefined && pendingCapacity < newRows) {
    throw new TrainingError(
      "invalid_settings",
      `pending_capacity must fit one batch's new-sample window (${newRows})`,
    );
  }
  return { replayRows, newRows };
}
