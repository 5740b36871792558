/** Errors of the online trainer. */
import { SidecarError } from "../runtime/errors.ts";

/** Kinds of {@link TrainingError}. */
export type TrainingErrorCode =
  | "invalid_settings"
  | "invalid_model"
  | "invalid_seed"
  | "invalid_fixtures"
  | "invalid_features"
  | "step_failed"
  | "address_in_use"
  | "path_exists"
  | "store_failed"
  | "unknown_version"
  | "no_model"
  | "non_finite_score"
  | "closed";

/** An error that the online trainer raises on purpose; `code` says which kind, the message names limit and actual value. */
export class TrainingError extends SidecarError {
  declare readonly code: TrainingErrorCode;

  constructor(code: TrainingErrorCode, message: string, options?: ErrorOptions) {
    super(code, message, options);
  }
}
