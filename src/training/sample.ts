/** One admitted piece of feedback. */
export interface Sample {
  /** N finite float32 numbers; never changed after admission. */
  readonly features: Float32Array;
  /** The true score, a finite float32. */
  readonly score: number;
}
