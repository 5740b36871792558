/**
 * What one connection may hold at once (spec/local-ingest.md 10), as counts: no I/O, no waiting. The reader asks before it reads a
 * body and before it starts an operation, and waits for {@link RequestBudget.onRelease} when the answer is no.
 *
 * While a budget for data is used up, a body is read only if it is small enough for the control reserve: a `cancel` gets through,
 * and at most one other small request is read and held until there is room. With `SIE_COMPAT=reference` the reader goes on to the
 * operation, which is then refused ({@link RequestBudget.refusal}).
 */
import { IngestLimits } from "../wire/ingest/limits.ts";

const {
  bufferedRequestBytes,
  controlOperationsPerConnection,
  controlReserveBytes,
  dataOperationsPerConnection,
  retainedRequestBytes,
} = IngestLimits;

/** Counts of one connection. */
export class RequestBudget {
  #bufferedBytes = 0;
  #dataBytes = 0;
  #dataOperations = 0;
  #controlOperations = 0;
  /** Called after everything that was given back. */
  onRelease: () => void = () => {};

  /** Bytes of all bodies that are held. */
  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  /** Bytes of the bodies of running data operations. */
  get dataBytes(): number {
    return this.#dataBytes;
  }

  /** Data operations that are running. */
  get dataOperations(): number {
    return this.#dataOperations;
  }

  /**
   * Whether a body of `length` bytes may be read now.
   *
   * @param pausing false with `SIE_COMPAT=reference`: only the bytes themselves count then
   */
  mayRead(length: number, pausing: boolean): boolean {
    if (this.#bufferedBytes + length > bufferedRequestBytes) return false;
    return !pausing || length <= controlReserveBytes || this.mayStartData(length);
  }

  /** Counts a body that is about to be read. */
  read(length: number): void {
    this.#bufferedBytes += length;
  }

  /** Whether a data operation with a body of `length` bytes may start now. */
  mayStartData(length: number): boolean {
    return this.#dataOperations < dataOperationsPerConnection && this.#dataBytes + length <= retainedRequestBytes;
  }

  /** Why a data operation is refused that may not start; the order is the contract's. */
  refusal(): string {
    return this.#dataOperations >= dataOperationsPerConnection
      ? `connection already has ${dataOperationsPerConnection} active data operations`
      : `connection already retains ${retainedRequestBytes} request bytes`;
  }

  /** Whether a control operation may start now. */
  mayStartControl(): boolean {
    return this.#controlOperations < controlOperationsPerConnection;
  }

  /** Counts a data operation whose body was counted by {@link read}. */
  startData(length: number): void {
    this.#dataOperations++;
    this.#dataBytes += length;
  }

  /** Counts a control operation. */
  startControl(): void {
    this.#controlOperations++;
  }

  /** Gives back what a data operation held. */
  endData(length: number): void {
    this.#dataOperations--;
    this.#dataBytes -= length;
    this.drop(length);
  }

  /** Gives back what a control operation held. */
  endControl(length: number): void {
    this.#controlOperations--;
    this.drop(length);
  }

  /** Gives back a body that led to no operation. */
  drop(length: number): void {
    this.#bufferedBytes -= length;
    this.onRelease();
  }
}
