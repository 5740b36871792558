/**
 * The base of every error that this program raises on purpose: a stable `code` for code and metrics to branch on, a message
 * for people, and the original cause kept for logs (never sent to a peer).
 */
export class SidecarError extends Error {
  /** Stable, machine-readable kind of the error. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** Text of an unknown thrown value, for logs. */
export function errorText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
