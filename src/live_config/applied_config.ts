/**
 * The configuration that this worker executes under: the committed bundle hash and the models it cannot serve (spec/queue.md 2.5,
 * seed "Live Config"). Live configuration itself comes later; until then the hash is the one given at start, or the backend's own.
 */
import type { ConfigView } from "../dispatch/views.ts";

export class AppliedConfig implements ConfigView {
  #hash: string;
  #unsupported: ReadonlySet<string> = new Set();

  /** @param initialHash `SIE_BUNDLE_CONFIG_HASH`, "" for none */
  constructor(initialHash: string) {
    this.#hash = initialHash;
  }

  get currentHash(): string {
    return this.#hash;
  }

  accepts(bundleConfigHash: string): boolean {
    return bundleConfigHash === "" || bundleConfigHash === this.#hash;
  }

  /** Models that this worker cannot serve, in no particular order. */
  get unsupportedModels(): readonly string[] {
    return [...this.#unsupported];
  }

  isUnsupported(modelId: string): boolean {
    return this.#unsupported.has(modelId);
  }

  /** Takes the hash that the backend reported in a Ping, but only while there is none of our own (spec/ipc.md 3.1). */
  adoptBackendHash(hash: string): void {
    if (this.#hash === "") this.#hash = hash;
  }

  /** Commits the hash and the unsupported models of an applied configuration. */
  commit(hash: string, unsupportedModels: Iterable<string>): void {
    this.#hash = hash;
    this.#unsupported = new Set(unsupportedModels);
  }
}
