/** The commands `train` and `feedback`. Imported only when one of them is called. */

/** How one of the commands was called. */
export interface TrainingCall {
  /** Name of the program for texts. */
  readonly program: string;
  readonly command: "train" | "feedback";
  /** Arguments after the command. */
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Runs the command.
 *
 * @returns the exit code of the process.
 */
export function runTrainingCommand(call: TrainingCall): Promise<number> {
  return Promise.reject(new Error(`${call.program} ${call.command} is not built yet`));
}
