/** Models that the gateway wants kept loaded in this worker's pool, handed on to the backend (spec/runtime.md 5). */
import { findPool, member } from "../consumer/pool_admission.ts";
import type { BackendPool } from "../ipc/backend_pool.ts";
import { errorText } from "../runtime/errors.ts";
import { logFor } from "../runtime/log.ts";

const logger = logFor("serve");

/** More names than any worker could hold are a fault of the gateway. */
const MOST_PINNED = 1024;

/** `spec.pinned_models` of the pool's entry: its strings, without empty ones and duplicates, sorted. */
export function pinnedModels(pools: readonly unknown[], pool: string): string[] {
  const listed = member(member(findPool(pools, pool), "spec"), "pinned_models");
  if (!Array.isArray(listed)) return [];
  const names = listed.filter((name): name is string => typeof name === "string" && name.trim() !== "");
  return [...new Set(names.map((name) => name.trim()))].sort().slice(0, MOST_PINNED);
}

/** Sends the list to the backend whenever it changes; a failed attempt is repeated with the next answer of the gateway. */
export class PinnedModels {
  readonly #backend: Pick<BackendPool, "setPinnedModels">;
  readonly #pool: string;
  /** What the backend was told last, as one text; a backend that was told nothing pins nothing. */
  #told = JSON.stringify([]);
  #telling = false;

  constructor(backend: Pick<BackendPool, "setPinnedModels">, pool: string) {
    this.#backend = backend;
    this.#pool = pool;
  }

  /** Takes the pools of one good answer. */
  async take(pools: readonly unknown[]): Promise<void> {
    const models = pinnedModels(pools, this.#pool);
    const text = JSON.stringify(models);
    if (text === this.#told || this.#telling) return;
    this.#telling = true;
    try {
      await this.#backend.setPinnedModels(models);
      this.#told = text;
      logger.info("{count} models are pinned", { count: models.length });
    } catch (thrown) {
      logger.warn("the backend was not told which models are pinned: {error}", { error: errorText(thrown) });
    } finally {
      this.#telling = false;
    }
  }
}
