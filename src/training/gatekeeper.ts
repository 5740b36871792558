/**
 * Runs the stability gate over new versions: in their order, one at a time, off the path of the ACKs (online-training.md,
 * section 6.3).
 */
import type { Clock } from "../runtime/clock.ts";
import { errorText } from "../runtime/errors.ts";
import type { CheckpointStore, VersionRecord } from "./checkpoint_store.ts";
import type { Fixtures } from "./fixtures.ts";
import { gateVerdict, pearson } from "./gate.ts";
import type { TrainingLog } from "./log.ts";
import type { TrainingMetrics } from "./metrics.ts";
import type { Params } from "./params.ts";
import { scoreRows } from "./scoring.ts";
import type { VersionLoader } from "./version_loader.ts";
import type { GateRecord, VersionMetadata } from "./version_metadata.ts";

/** What a gatekeeper is made of. */
export interface GatekeeperOptions {
  readonly store: CheckpointStore;
  readonly loader: VersionLoader;
  /** Undefined: nothing is compared, every verdict is `skipped`, and no version becomes stable. */
  readonly fixtures: Fixtures | undefined;
  /** Largest fall of the correlation that passes. */
  readonly maxRegression: number;
  /** The seed model, which the first version is compared with; undefined when none was loaded. */
  readonly seed: Params | undefined;
  readonly clock: Clock;
  readonly log: TrainingLog;
  readonly metrics: TrainingMetrics;
  /** Called after each verdict, with the version's metadata. */
  readonly onVerdict: (metadata: VersionMetadata) => void;
}

interface Previous {
  readonly version: number | null;
  readonly plcc: number | undefined;
}

/** See the file's comment. */
export class Gatekeeper {
  readonly #options: GatekeeperOptions;
  /** Versions that need no further look: judged, or decided about. Each poll reads only the files of the others. */
  readonly #settled = new Set<number>();
  #work: Promise<void> = Promise.resolve();

  constructor(options: GatekeeperOptions) {
    this.#options = options;
    // Judged or not: it is to be looked at until its file is repaired.
    options.loader.onQuarantined = (version) => this.#settled.delete(version);
  }

  /** Judges every candidate that has no verdict under these fixtures yet; resolves when that is done. Never rejects. */
  judgeAll(): Promise<void> {
    this.#work = this.#work.then(() => this.#judgeAll()).catch((thrown) => {
      this.#options.log.error(`the stability gate failed, its versions stay candidates: ${errorText(thrown)}`);
    });
    return this.#work;
  }

  async #judgeAll(): Promise<void> {
    for (const version of await this.#options.store.numbers()) {
      if (this.#settled.has(version)) continue;
      const record = await this.#record(version);
      if (record?.sha256 === undefined || record.metadata.state === "quarantined") continue;
      if (!this.#isDue(record) || await this.#judge(record)) this.#settled.add(version);
    }
  }

  /** The version as it is now; one in quarantine is verified again first, when its file has changed. */
  async #record(version: number): Promise<VersionRecord | undefined> {
    const { store, loader } = this.#options;
    const record = await store.record(version);
    if (record?.metadata.state !== "quarantined") return record;
    return (await loader.load(record)).kind === "loaded" ? await store.record(version) : record;
  }

  #isDue({ metadata }: VersionRecord): boolean {
    if (metadata.state !== "candidate") return false;
    return metadata.gate === null || metadata.gate.fixtures_sha256 !== (this.#options.fixtures?.sha256 ?? null);
  }

  /** Returns whether there is a verdict; false: the version cannot be read yet, or went into quarantine. */
  async #judge(record: VersionRecord): Promise<boolean> {
    const { fixtures, log, metrics, store, maxRegression } = this.#options;
    const loaded = await this.#options.loader.load(record);
    if (loaded.kind !== "loaded") return false;
    const plcc = fixtures === undefined ? undefined : await this.#plcc(loaded.params, fixtures);
    const previous = fixtures === undefined ? { version: null, plcc: undefined } : await this.#previous(record);
    const result = fixtures === undefined ? "skipped" : gateVerdict(previous.plcc, plcc, maxRegression);
    const gate: GateRecord = {
      result,
      plcc: plcc ?? null,
      previous_version: previous.version,
      previous_plcc: previous.plcc ?? null,
      delta: previous.plcc === undefined || plcc === undefined ? null : previous.plcc - plcc,
      threshold: maxRegression,
      fixtures_sha256: fixtures?.sha256 ?? null,
    };
    const state = fixtures === undefined ? "candidate" : result === "failed" ? "unstable" : "stable";
    metrics.gate[result]++;
    metrics.gatePlcc = plcc;
    const marked = await store.mark(record.version, (metadata) =>
      // Somebody may have decided about the version meanwhile; that decision stands, the numbers are noted.
      metadata.state === "candidate" ? { ...metadata, state, reason: reasonText(gate), gate } : { ...metadata, gate });
    const line = `${record.metadata.name}: gate ${result}, ${reasonText(gate)}`;
    if (state === "stable") log.info(line);
    else log.warn(line);
    if (marked !== undefined) this.#options.onVerdict(marked);
    return true;
  }

  /** The newest earlier version that is still trusted, or the seed. */
  async #previous(record: VersionRecord): Promise<Previous> {
    const { fixtures, seed } = this.#options;
    if (fixtures === undefined) return { version: null, plcc: undefined };
    for await (const earlier of this.#options.store.newestFirst(record.version)) {
      const { metadata, version } = earlier;
      if (metadata.state !== "stable" && metadata.state !== "candidate") continue;
      if (metadata.gate?.fixtures_sha256 === fixtures.sha256) return { version, plcc: metadata.gate.plcc ?? undefined };
      const loaded = await this.#options.loader.load(earlier);
      if (loaded.kind === "loaded") return { version, plcc: await this.#plcc(loaded.params, fixtures) };
    }
    return { version: null, plcc: seed === undefined ? undefined : await this.#plcc(seed, fixtures) };
  }

  async #plcc(params: Params, fixtures: Fixtures): Promise<number | undefined> {
    const scores = await scoreRows(params, fixtures.features, fixtures.count, this.#options.clock);
    return pearson(scores, fixtures.scores);
  }
}

function reasonText(gate: GateRecord): string {
  if (gate.fixtures_sha256 === null) return "no gate fixtures are configured, so it is not eligible for latest-stable";
  if (gate.plcc === null) return "the correlation with the fixtures is undefined";
  if (gate.delta === null) return `PLCC ${gate.plcc.toFixed(6)}, nothing to compare with`;
  const against = gate.previous_version === null ? "the seed model" : `version ${gate.previous_version}`;
  const change = `${Math.abs(gate.delta).toFixed(6)} ${gate.delta > 0 ? "lower" : "higher"} than ${against}`;
  return `PLCC ${gate.plcc.toFixed(6)}, ${change} (at most ${gate.threshold} lower passes)`;
}
