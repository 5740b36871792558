/** One message of the feedback protocol, as the client writes it, and the answer as it reads it (online-training.md, section 5). */
import { TrainingError } from "./errors.ts";

/** A piece of feedback to be sent. */
export interface FeedbackMessage {
  readonly jobId: string;
  readonly features: ArrayLike<number>;
  readonly trueScore: number;
  /** More fields that ride along; servers ignore them. The three names above cannot be replaced. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** The line of a message, with its line feed; numbers are rounded to float32.
 *
 * @throws TrainingError `invalid_features` when a number is not finite as float32.
 */
export function encodeMessage(message: FeedbackMessage): Uint8Array {
  const features: number[] = [];
  for (let i = 0; i < message.features.length; i++) {
    features.push(float32(message.features[i] as number, `features[${i}]`));
  }
  return new TextEncoder().encode(`${
    JSON.stringify({
      ...message.extra,
      job_id: message.jobId,
      features,
      true_score: float32(message.trueScore, "true_score"),
    })
  }\n`);
}

/** Nine digits carry every float32 exactly; a double's seventeen would only be longer. */
function float32(value: number, name: string): number {
  const rounded = Math.fround(value);
  if (!Number.isFinite(rounded)) {
    throw new TrainingError("invalid_features", `${name} is not a finite float32: ${value}`);
  }
  return Number(rounded.toPrecision(9));
}

/** What an answer means. */
export type AckVerdict =
  | { readonly kind: "accepted"; readonly checkpoint: string; readonly step: number; readonly trainingError: string }
  | { readonly kind: "retry_later"; readonly error: string }
  | { readonly kind: "rejected"; readonly error: string }
  /** The line is no answer. The reference counts the message as done. */
  | { readonly kind: "unreadable" };

/** Reads an answer line; absent fields have their zero value. */
export function readAck(line: string): AckVerdict {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return { kind: "unreadable" };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return { kind: "unreadable" };
  const ack = value as Record<string, unknown>;
  const text = (key: string) => typeof ack[key] === "string" ? ack[key] : "";
  if (ack["ok"] === true) {
    return {
      kind: "accepted",
      checkpoint: text("checkpoint"),
      step: typeof ack["step"] === "number" ? ack["step"] : 0,
      trainingError: text("training_error"),
    };
  }
  return { kind: ack["retryable"] === true ? "retry_later" : "rejected", error: text("error") };
}
