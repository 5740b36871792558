/**
 * The serving model: chosen by policy, verified, swapped without a call noticing, and taken back when it fails
 * (online-training.md, sections 6.2, 6.4 and 6.5).
 */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { CheckpointStore, VersionRecord } from "./checkpoint_store.ts";
import { TrainingError } from "./errors.ts";
import type { TrainingLog } from "./log.ts";
import type { TrainingMetrics } from "./metrics.ts";
import { forwardRows } from "./network.ts";
import type { Params } from "./params.ts";
import { type FailureRate, type RollbackRule, RollbackWindow } from "./rollback_window.ts";
import { scoreRows } from "./scoring.ts";
import type { VersionLoader } from "./version_loader.ts";
import { versionName } from "./version_name.ts";
import { mayServe, policyText, type VersionPolicy, type VersionState } from "./version_policy.ts";

/** What a scorer is made of. */
export interface ScorerOptions {
  readonly store: CheckpointStore;
  readonly loader: VersionLoader;
  /** Serves while no version is eligible; undefined: nothing does. */
  readonly seed: Params | undefined;
  readonly baseName: string;
  /** The policy that holds now; asked at every reload. */
  readonly policy: () => Promise<VersionPolicy>;
  readonly rollback: RollbackRule;
  /** Longest wait for calls of the old model after a swap, in milliseconds. */
  readonly drainMs: number;
  readonly clock: Clock;
  readonly log: TrainingLog;
  readonly metrics: TrainingMetrics;
}

/** A model that serves or served. Immutable but for the count of its calls. */
export interface ServingModel {
  /** Number of the version; null for the seed model. */
  readonly version: number | null;
  readonly modelVersion: string;
  readonly params: Params;
}

interface Slot extends ServingModel {
  inFlight: number;
  drained: (() => void) | undefined;
}

/** Scores with the name of the model that gave them. */
export interface Scores {
  readonly scores: Float32Array;
  readonly model: ServingModel;
}

/** See the file's comment. */
export class Scorer {
  readonly #options: ScorerOptions;
  readonly #window: RollbackWindow;
  #active: Slot | undefined;
  /** Served before the active one, newest last; only what a rollback could go back to. */
  readonly #history: Slot[] = [];
  #reloading: Promise<void> = Promise.resolve();
  #drains = new Set<Promise<void>>();
  #cannotRollBack = false;
  #rollingBack: Slot | undefined;
  /** Rolled back with that reason, but not marked yet: the folder could not be written. */
  readonly #unmarked = new Map<number, string>();
  #rolledBackUnderPin: number | undefined;
  #note = "";

  constructor(options: ScorerOptions) {
    this.#options = options;
    this.#window = new RollbackWindow(options.rollback);
    if (options.seed !== undefined) this.#active = this.#seedSlot(options.seed);
  }

  /** The model that serves now. */
  get active(): ServingModel | undefined {
    return this.#active;
  }
  /** True when the active model fails too often and there is nothing to go back to. */
  get failing(): boolean {
    return this.#cannotRollBack;
  }
  /** Why the serving version is not the one that the policy asks for; empty when it is. */
  get note(): string {
    return this.#note;
  }

  /**
   * Scores `count` rows with the model that is active now; a swap in between does not change it.
   *
   * @throws TrainingError `no_model` before any model, `non_finite_score` when the model overflows on these rows.
   */
  async score(features: Float32Array, count: number): Promise<Scores> {
    const slot = this.#active;
    if (slot === undefined) throw new TrainingError("no_model", "there is no model yet");
    slot.inFlight++;
    try {
      const scores = await scoreRows(slot.params, features, count, this.#options.clock);
      const finite = scores.every(Number.isFinite);
      this.#count(slot, finite);
      if (!finite) throw new TrainingError("non_finite_score", `${slot.modelVersion} gave a score that is not finite`);
      return { scores, model: slot };
    } finally {
      slot.inFlight--;
      if (slot.inFlight === 0) slot.drained?.();
    }
  }

  /** Scores one row at once, for callers that cannot wait; undefined before any model or when the score is not finite. */
  scoreOne(features: Float32Array, into: Float32Array): ServingModel | undefined {
    const slot = this.#active;
    if (slot === undefined) return undefined;
    forwardRows(slot.params, features, 0, 1, into);
    const finite = Number.isFinite(into[0]);
    this.#count(slot, finite);
    return finite ? slot : undefined;
  }

  /** Looks which version should serve, loads it and swaps. A failure keeps the old model. Never rejects. */
  reload(): Promise<void> {
    this.#reloading = this.#reloading.then(() => this.#reload()).catch((thrown) => {
      this.#options.log.error(`reload failed, the model stays: ${errorText(thrown)}`);
    });
    return this.#reloading;
  }

  /** Resolves when all reloads and drains that were begun are over. */
  async settled(): Promise<void> {
    await this.#reloading;
    await Promise.all(this.#drains);
  }

  async #reload(): Promise<void> {
    await this.#markRolledBack();
    const policy = await this.#options.policy();
    const { store } = this.#options;
    const offered = policy.kind === "pinned" ? only(await store.record(policy.version)) : store.newestFirst();
    for await (const record of offered) {
      // A version in quarantine is offered too: the loader looks whether its file has changed.
      const state = this.#stateOf(record) === "quarantined" ? "candidate" : this.#stateOf(record);
      if (!mayServe(policy, record.version, state)) continue;
      if (this.#active?.version === record.version) return this.#settleOn(policy, record);
      if (await this.#tryServe(record, policy)) return this.#settleOn(policy, record);
    }
    this.#serveFallback(policy);
  }

  async #tryServe(record: VersionRecord, policy: VersionPolicy): Promise<boolean> {
    const loaded = await this.#options.loader.load(record);
    if (loaded.kind !== "loaded") return false;
    // Released from quarantine it is a candidate; the policy decides about what it is now.
    const now = await this.#options.store.record(record.version);
    if (now === undefined || !mayServe(policy, record.version, this.#stateOf(now))) return false;
    const trial = await scoreRows(loaded.params, new Float32Array(loaded.params.nFeatures), 1, this.#options.clock);
    if (!Number.isFinite(trial[0])) {
      this.#options.log.warn(`${record.metadata.name} does not serve: its score of a row of zeros is not finite`);
      return false;
    }
    const slot = { ...identityOf(record), params: loaded.params, inFlight: 0, drained: undefined };
    this.#swap(slot, `policy ${policyText(policy)}`);
    return true;
  }

  #settleOn(policy: VersionPolicy, record: VersionRecord): void {
    const { name, state } = record.metadata;
    const doubtful = policy.kind === "pinned" && state !== "stable" && state !== "candidate";
    this.#say(doubtful ? `${name} is pinned although it is ${state}` : "");
  }

  /** No version may serve: a pinned one that is missing leaves everything as it is, otherwise the seed model serves. */
  #serveFallback(policy: VersionPolicy): void {
    const { seed } = this.#options;
    if (policy.kind === "pinned") {
      this.#say(`${policyText(policy)} cannot be loaded; what served before goes on`);
      return;
    }
    this.#say(`no version is eligible for ${policyText(policy)}`);
    // A version that fails with nothing to go back to goes on: some answers are better than none.
    if (this.#active === undefined || this.#active.version === null || this.#cannotRollBack) return;
    if (seed !== undefined) this.#swap(this.#seedSlot(seed), this.#note);
    else {
      this.#options.log.warn(`${this.#active.modelVersion} no longer serves and nothing takes its place`);
      this.#retire(this.#active);
      this.#active = undefined;
      this.#window.clear();
    }
  }

  #seedSlot(params: Params): Slot {
    return { version: null, modelVersion: this.#options.baseName, params, inFlight: 0, drained: undefined };
  }

  #swap(slot: Slot, why: string): void {
    const old = this.#active;
    this.#active = slot;
    this.#window.clear();
    this.#cannotRollBack = false;
    this.#options.metrics.swaps++;
    this.#options.log.info(`${slot.modelVersion} serves now (before: ${old?.modelVersion ?? "none"}; ${why})`);
    if (old === undefined) return;
    this.#history.push(old);
    if (this.#history.length > 2) this.#history.shift();
    this.#retire(old);
  }

  /** Waits for the calls of a model that no longer serves; they end with the scores of the model they began with. */
  #retire(slot: Slot): void {
    if (slot.inFlight === 0) return;
    const { clock, drainMs, log } = this.#options;
    const drain = new Promise<void>((resolve) => {
      const cancel = clock.after(drainMs, () => {
        log.warn(`${slot.inFlight} calls of ${slot.modelVersion} still run ${drainMs} ms after the swap`);
        resolve();
      });
      slot.drained = () => {
        cancel();
        resolve();
      };
    });
    this.#drains.add(drain);
    drain.then(() => this.#drains.delete(drain));
  }

  #count(slot: Slot, succeeded: boolean): void {
    const { metrics, clock } = this.#options;
    if (succeeded) metrics.predictionsCompleted++;
    else metrics.predictionsFailed++;
    if (slot !== this.#active) return;
    const due = this.#window.record(clock.now(), succeeded);
    if (due !== undefined) this.#rollBack(slot, due);
  }

  #rollBack(slot: Slot, rate: FailureRate): void {
    const reason = `${rate.failures} of ${rate.total} scoring calls failed (${(100 * rate.rate).toFixed(1)} %)`;
    if (slot.version === null) return this.#reportStuck(slot, reason);
    if (this.#rollingBack === slot || this.#rolledBackUnderPin === slot.version) return;
    this.#rollingBack = slot;
    this.#options.metrics.rollbacks++;
    this.#options.log.error(`${slot.modelVersion} is rolled back: ${reason}`);
    this.#reloading = this.#reloading.then(() => this.#goBack(slot, slot.version ?? 0, reason)).catch((thrown) => {
      this.#options.log.error(`rollback failed: ${errorText(thrown)}`);
    }).finally(() => this.#rollingBack = undefined);
  }

  async #goBack(slot: Slot, version: number, reason: string): Promise<void> {
    const { seed } = this.#options;
    const policy = await this.#options.policy();
    this.#unmarked.set(version, reason);
    await this.#markRolledBack();
    if (policy.kind === "pinned" && policy.version === version) {
      this.#rolledBackUnderPin = version;
      this.#say(`${slot.modelVersion} is pinned although it was rolled back: ${reason}`);
      return;
    }
    // A reload that was waiting before us may have replaced it already.
    if (this.#active !== slot) return;
    const target = await this.#previous() ?? (seed === undefined ? undefined : this.#seedSlot(seed));
    if (target === undefined) return this.#reportStuck(slot, reason);
    this.#swap(target, "rollback");
    // The version that failed is not something to go back to.
    this.#history.pop();
  }

  /** Service does not wait for the disk: what cannot be marked now is remembered, and marked at the next reload. */
  async #markRolledBack(): Promise<void> {
    for (const [version, reason] of this.#unmarked) {
      try {
        await this.#options.store.mark(version, (metadata) => ({ ...metadata, state: "rolled_back", reason }));
        this.#unmarked.delete(version);
      } catch (thrown) {
        this.#options.log.error(`${versionName(version)} cannot be marked as rolled back: ${errorText(thrown)}`);
      }
    }
  }

  #stateOf(record: VersionRecord): VersionState {
    return this.#unmarked.has(record.version) ? "rolled_back" : record.metadata.state;
  }

  /** The version that served before, unless it was condemned meanwhile. */
  async #previous(): Promise<Slot | undefined> {
    for (let slot = this.#history.pop(); slot !== undefined; slot = this.#history.pop()) {
      if (slot.version === null) return slot;
      const record = await this.#options.store.record(slot.version);
      const state = record === undefined ? undefined : this.#stateOf(record);
      if (state !== "rolled_back" && state !== "quarantined") return { ...slot, inFlight: 0, drained: undefined };
    }
    return undefined;
  }

  #reportStuck(slot: Slot, reason: string): void {
    if (!this.#cannotRollBack) {
      this.#options.log.error(`${slot.modelVersion} goes on, there is nothing to go back to: ${reason}`);
    }
    this.#cannotRollBack = true;
  }

  #say(note: string): void {
    if (note !== "" && note !== this.#note) this.#options.log.warn(note);
    this.#note = note;
  }
}

function* only(record: VersionRecord | undefined): Generator<VersionRecord> {
  if (record !== undefined) yield record;
}

function identityOf(record: VersionRecord): { version: number; modelVersion: string } {
  return { version: record.version, modelVersion: record.metadata.model_version };
}
