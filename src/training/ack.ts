/** Answers of the feedback protocol (online-training.md, section 1.3). */

/** What the trainer did with one sample. */
export type IngestOutcome =
  /** Admitted; no step ran in this call. */
  | { readonly kind: "admitted"; readonly step: number }
  /** Admitted and a step done; `checkpoint` is the path of the exported file, when this step exported one. */
  | { readonly kind: "trained"; readonly step: number; readonly loss: number; readonly checkpoint: string | null }
  /** Admitted, but the step failed; the sample must not be sent again. */
  | { readonly kind: "retry_queued"; readonly step: number; readonly error: string }
  /** Not admitted. `retryable`: the same sample may be sent again later. */
  | { readonly kind: "refused"; readonly error: string; readonly retryable: boolean };

/**
 * The answer line, with its line feed.
 *
 * @param jobId the request's `job_id` as JSON text; only answers with `ok: true` carry it.
 */
export function formatAck(outcome: IngestOutcome, jobId: string): string {
  switch (outcome.kind) {
    case "admitted":
      return `{"ok":true,"step":${digits(outcome.step)},"trained":false,"job_id":${jobId}}\n`;
    case "trained":
      return `{"ok":true,"step":${digits(outcome.step)},"trained":true,"loss":${JSON.stringify(outcome.loss)},` +
        `"checkpoint":${JSON.stringify(outcome.checkpoint)},"job_id":${jobId}}\n`;
    case "retry_queued":
      return `{"ok":true,"step":${digits(outcome.step)},"trained":false,"retry_queued":true,` +
        `"training_error":${JSON.stringify(outcome.error)},"job_id":${jobId}}\n`;
    case "refused": {
      const retryable = outcome.retryable ? `,"retryable":true` : "";
      return `{"ok":false,"error":${JSON.stringify(outcome.error)}${retryable}}\n`;
    }
  }
}

/** An integer in plain digits: the Go client's decoder refuses `1e21`, which only a count beyond 2^69 would give. */
function digits(step: number): string {
  return Number.isSafeInteger(step) ? `${step}` : BigInt(Math.trunc(step)).toString();
}
