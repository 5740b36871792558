/**
 * Reads one request line of the feedback protocol and says what is wrong with it (online-training.md, sections 1.2 and 1.4;
 * vectors: wire_cases.json). The order of the checks is the reference's: syntax, `features` present, `true_score` present,
 * length, score, elements.
 */
import { JsonCursor, JsonSyntaxError } from "./json_cursor.ts";
import type { Sample } from "./sample.ts";

/** Result of reading one line. */
export type FeedbackRequest =
  | {
    readonly kind: "sample";
    readonly sample: Sample;
    /** The `job_id` as JSON text, byte for byte as it came; `""` (with the quotes) when there was none. */
    readonly jobId: string;
  }
  | { readonly kind: "rejected"; readonly error: string };

const NO_JOB_ID = '""';
const NO_VALUES: Float32Array = new Float32Array(0);

/** Whether the line has nothing but ASCII white space; such a line is skipped without an answer. */
export function isBlankLine(bytes: Uint8Array, start: number, end: number): boolean {
  for (let i = start; i < end; i++) {
    const byte = bytes[i] as number;
    // Space, \t, \n, \v, \f, \r: what the reference's bytes.strip() takes away.
    if (byte !== 0x20 && (byte < 0x09 || byte > 0x0d)) return false;
  }
  return true;
}

/** Reads lines for a trainer with a fixed number of features. */
export class FeedbackLineReader {
  readonly #nFeatures: number;
  readonly #cursor = new JsonCursor();
  // What was found so far in the line that is being read; the last of equal keys counts.
  #features: "missing" | "array" | "other" = "missing";
  #values = NO_VALUES;
  #count = 0;
  #badElement = -1;
  #score: number | "missing" | "other" = "missing";
  #jobId = NO_JOB_ID;

  constructor(nFeatures: number) {
    this.#nFeatures = nFeatures;
  }

  /** Reads the line at `start` to `end` of `bytes`, without its line feed. */
  read(bytes: Uint8Array, start: number, end: number): FeedbackRequest {
    this.#features = "missing";
    this.#values = NO_VALUES;
    this.#score = "missing";
    this.#jobId = NO_JOB_ID;
    this.#cursor.open(bytes, start, end);
    try {
      if (this.#cursor.kind() !== "object") {
        this.#cursor.skip();
        this.#cursor.finish();
        return rejected("the request is not a JSON object");
      }
      for (let more = this.#cursor.enter("object"); more; more = this.#cursor.next("object")) this.#member();
      this.#cursor.finish();
    } catch (thrown) {
      if (thrown instanceof JsonSyntaxError) return rejected(`invalid JSON: ${thrown.message}`);
      throw thrown;
    }
    return this.#judge();
  }

  #member(): void {
    const cursor = this.#cursor;
    switch (cursor.key()) {
      case "features":
        this.#readFeatures();
        return;
      case "true_score":
        if (cursor.kind() === "number") this.#score = Math.fround(cursor.number());
        else {
          this.#score = "other";
          cursor.skip(2);
        }
        return;
      case "job_id": {
        cursor.peek();
        const from = cursor.at;
        cursor.skip(2);
        this.#jobId = cursor.text(from, cursor.at);
        return;
      }
      default:
        cursor.skip(2);
    }
  }

  #readFeatures(): void {
    const cursor = this.#cursor;
    if (cursor.kind() !== "array") {
      this.#features = "other";
      cursor.skip(2);
      return;
    }
    this.#features = "array";
    // One array a line: a sample keeps it, and a key that is repeated must not make more of them.
    if (this.#values === NO_VALUES) this.#values = new Float32Array(this.#nFeatures);
    this.#count = 0;
    this.#badElement = -1;
    for (let more = cursor.enter("array"); more; more = cursor.next("array"), this.#count++) {
      let value = NaN;
      if (cursor.kind() === "number") value = Math.fround(cursor.number());
      else cursor.skip(3);
      if (!Number.isFinite(value) && this.#badElement < 0) this.#badElement = this.#count;
      if (this.#count < this.#nFeatures) this.#values[this.#count] = value;
    }
  }

  #judge(): FeedbackRequest {
    if (this.#features === "missing") return rejected("'features'");
    if (this.#score === "missing") return rejected("'true_score'");
    if (this.#features === "other") return rejected("features is not an array");
    if (this.#count !== this.#nFeatures) {
      return rejected(`feature vector length ${this.#count} != expected ${this.#nFeatures}`);
    }
    if (typeof this.#score !== "number" || !Number.isFinite(this.#score)) {
      return rejected("true_score is not a finite number");
    }
    if (this.#badElement >= 0) return rejected(`features[${this.#badElement}] is not a finite number`);
    return { kind: "sample", sample: { features: this.#values, score: this.#score }, jobId: this.#jobId };
  }
}

function rejected(error: string): FeedbackRequest {
  return { kind: "rejected", error };
}
