/**
 * The configuration that this worker executes under: the committed bundle hash and the models it cannot serve (spec/queue.md 2.5,
 * seed "Live Config"). Live configuration itself comes later; until then the hash is the one given at start, or the backend's own.
 */
import type { ConfigView } from "../dispatch/views.ts";
import { sortedUnion } from "../runtime/sorted_union.ts";

/** See the file's comment. */
export class AppliedConfig implements ConfigView {
  #hash: string;
  #unsupportedModels: readonly string[] = [];
  /** The same, to be looked up. */
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

  /** Models that this worker cannot serve: trimmed, sorted, each once (spec/live-config.md 2). */
  get unsupportedModels(): readonly string[] {
    return this.#unsupportedModels;
  }

  isUnsupported(modelId: string): boolean {
    // Nearly always there are none: then no text is made.
    return this.#unsupported.size > 0 && this.#unsupported.has(asciiLowerCase(modelId));
  }

  /** Takes the hash that the backend reported in a Ping, but only while there is none of our own (spec/ipc.md 3.1). */
  adoptBackendHash(hash: string): void {
    if (this.#hash === "") this.#hash = hash;
  }

  /** Commits the hash and the unsupported models of an applied configuration. */
  commit(hash: string, unsupportedModels: Iterable<string>): void {
    this.#hash = hash;
    const trimmed = [...unsupportedModels].map((model) => model.trim()).filter((model) => model !== "");
    this.#unsupportedModels = sortedUnion([trimmed]);
    this.#unsupported = new Set(this.#unsupportedModels.map(asciiLowerCase));
  }
}

/** Model ids are compared without regard to the case of ASCII letters, and of those alone (spec/live-config.md 2.1). */
function asciiLowerCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
