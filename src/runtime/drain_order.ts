/**
 * Shutdown in a fixed order (runtime.md 7): each step has a limit of its own, and one that overruns or fails does not keep
 * the later ones from being done.
 */
import type { Clock } from "./clock.ts";
import { errorText } from "./errors.ts";

/** One step of the shutdown. */
export interface DrainStep {
  readonly name: string;
  /** After this many milliseconds the next step begins. */
  readonly limitMs: number;
  /** Does the step; `signal` is aborted at the limit. */
  run(signal: AbortSignal): Promise<void> | void;
}

/** How a step ended. */
export type StepOutcome =
  | { readonly kind: "done" }
  | { readonly kind: "overran" }
  | { readonly kind: "failed"; readonly why: string };

/** One step of a {@link DrainReport}. */
export interface StepReport {
  readonly name: string;
  readonly tookMs: number;
  readonly limitMs: number;
  readonly outcome: StepOutcome;
}

/** What a shutdown came to. */
export interface DrainReport {
  readonly steps: readonly StepReport[];
  readonly totalMs: number;
  /** Every step was done within its limit. */
  readonly clean: boolean;
}

/** Runs `steps` one after the other. Never rejects; `onStep` hears of each as it ends. */
export async function drainInOrder(
  clock: Clock,
  steps: readonly DrainStep[],
  onStep: (report: StepReport) => void = () => {},
): Promise<DrainReport> {
  const started = clock.now();
  const reports: StepReport[] = [];
  for (const step of steps) {
    const report = await runStep(clock, step);
    reports.push(report);
    onStep(report);
  }
  return {
    steps: reports,
    totalMs: clock.now() - started,
    clean: reports.every((report) => report.outcome.kind === "done"),
  };
}

async function runStep(clock: Clock, step: DrainStep): Promise<StepReport> {
  const started = clock.now();
  const controller = new AbortController();
  const outcome = await new Promise<StepOutcome>((resolve) => {
    const cancel = clock.after(step.limitMs, () => {
      resolve({ kind: "overran" });
      controller.abort(new DOMException(`${step.name} took longer than ${step.limitMs} ms`, "TimeoutError"));
    });
    const end = (ended: StepOutcome) => {
      cancel();
      resolve(ended);
    };
    // A step that overran may still end; by then nobody listens, and its late failure is nobody's business.
    Promise.resolve().then(() => step.run(controller.signal)).then(
      () => end({ kind: "done" }),
      (thrown: unknown) => end({ kind: "failed", why: errorText(thrown) }),
    );
  });
  return { name: step.name, tookMs: clock.now() - started, limitMs: step.limitMs, outcome };
}
