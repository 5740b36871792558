/** The course of the loss, in bounded memory: each kept point stands for ever more steps. */

/** One point of the curve. */
export interface LossPoint {
  readonly step: number;
  /** Mean loss of the steps that the point stands for. */
  readonly loss: number;
}

const MAX_POINTS = 512;

/** Collects the loss of every step. */
export class LossHistory {
  #points: LossPoint[] = [];
  /** Steps per point; doubles whenever the points are full. */
  #stride = 1;
  #sum = 0;
  #count = 0;

  add(step: number, loss: number): void {
    this.#sum += loss;
    if (++this.#count < this.#stride) return;
    this.#points.push({ step, loss: this.#sum / this.#count });
    this.#sum = this.#count = 0;
    if (this.#points.length < MAX_POINTS) return;
    const halved: LossPoint[] = [];
    for (let i = 1; i < this.#points.length; i += 2) {
      const first = this.#points[i - 1] as LossPoint, second = this.#points[i] as LossPoint;
      halved.push({ step: second.step, loss: (first.loss + second.loss) / 2 });
    }
    this.#points = halved;
    this.#stride *= 2;
  }

  /** The points so far, oldest first. */
  points(): readonly LossPoint[] {
    return this.#points;
  }
}
