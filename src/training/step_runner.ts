/** Runs optimiser steps over reserved samples, in slices that leave the event loop free. */
import type { Clock } from "../runtime/clock.ts";
import type { Sample } from "./sample.ts";
import type { SgdEma } from "./sgd.ts";

/** What one successful step came to. */
export interface StepReport {
  /** Mean squared error of the batch before the update. */
  readonly loss: number;
}

/** Trains one batch: the reserved window, then the replayed samples. Throws or rejects when nothing was applied. */
export type RunStep = (window: readonly Sample[], replayed: readonly Sample[]) => StepReport | Promise<StepReport>;

/** Multiplications of one slice: about 10 ms on a slow core, well under the 50 ms that the event loop may be held. */
const SLICE = 8_000_000;

/** Trains with `sgd`. A step that fits one slice is done when the function returns; a larger one gives a promise. */
export function sgdStepRunner(sgd: SgdEma, clock: Clock): RunStep {
  const fill = (samples: readonly Sample[], from: number): number => {
    for (let i = 0; i < samples.length; i++) {
      const sample = samples[i] as Sample;
      sgd.features.set(sample.features, (from + i) * sgd.nFeatures);
      sgd.targets[from + i] = sample.score;
    }
    return from + samples.length;
  };
  const finish = async (): Promise<StepReport> => {
    do await breathe(clock); while (!sgd.advance(SLICE));
    return { loss: sgd.loss };
  };
  return (window, replayed) => {
    const rows = fill(replayed, fill(window, 0));
    sgd.begin(rows);
    return sgd.advance(SLICE) ? { loss: sgd.loss } : finish();
  };
}

/** Lets everything else that is due run once. */
export function breathe(clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    clock.after(0, resolve);
  });
}
